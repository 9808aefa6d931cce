#include "toolkit/launch/doctor.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "toolkit/launch/shipped.h"

namespace dtk::launch {
namespace {

namespace fs = std::filesystem;

/// Those that LibTorch's and oneDNN's kernels ask for, oldest first.
constexpr std::array<const char*, 5> kInstructions = {"avx2", "avx512f", "avx512_bf16", "amx_bf16",
                                                      "amx_fp16"};

/// A function of the CUDA driver; of the library's binary interface, which is the same in all versions.
template <class... Arguments>
bool call(void* library, const char* name, Arguments... arguments) {
  using Function = int (*)(Arguments...);
  const auto function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr && function(arguments...) == 0;
}

void ask_driver(Machine& machine) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr || !call(library, "cuInit", 0U)) return;
  int count = 0;
  if (!call(library, "cuDriverGetVersion", &machine.driver) || !call(library, "cuDeviceGetCount", &count))
    return;
  for (int index = 0; index < count; ++index) {
    constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
    CudaDevice device;
    std::array<char, 256> name{};
    size_t bytes = 0;
    int handle = 0;
    if (!call(library, "cuDeviceGet", &handle, index) ||
        !call(library, "cuDeviceGetName", name.data(), static_cast<int>(name.size()), handle) ||
        !call(library, "cuDeviceTotalMem_v2", &bytes, handle) ||
        !call(library, "cuDeviceGetAttribute", &device.major, kMajor, handle) ||
        !call(library, "cuDeviceGetAttribute", &device.minor, kMinor, handle)) {
      continue;
    }
    device.name = name.data();
    device.bytes = static_cast<int64_t>(bytes);
    machine.devices.push_back(device);
  }
}

std::vector<std::string> instructions_here() {
  std::ifstream file("/proc/cpuinfo");
  std::vector<std::string> found;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (std::find(kInstructions.begin(), kInstructions.end(), word) != kInstructions.end())
        found.push_back(word);
    }
    break;
  }
  return found;
}

/// A row of /proc/meminfo, bytes.
int64_t memory_row(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  return 0;
}

std::string gibibytes(int64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text.data();
}

std::string row(const std::string& name, const std::string& value) {
  return name + std::string(16 - name.size(), ' ') + value + "\n";
}

std::string torch_rows(const TorchSearch& torch, const std::string& minor) {
  if (torch.root.empty()) {
    std::string text =
        row("LibTorch", "none of version " + minor + ": nothing can be trained, planned or sampled");
    for (const std::string& line : torch.passed) text += row("", line);
    return text;
  }
  std::error_code ignored;
  const bool cuda = fs::exists(torch.root / "lib/libtorch_cuda.so", ignored);
  return row("LibTorch", torch.version + " in " + torch.root.string()) +
         row("  for CUDA", cuda ? "libtorch_cuda.so is there"
                                : "no libtorch_cuda.so: no training on a GPU; plans for a GPU work");
}

/// Of CUDA, that a LibTorch such as "2.15.0+cu132" was built with; 0 for one without.
int cuda_major(const std::string& version) {
  const size_t at = version.find("+cu");
  return at == std::string::npos ? 0 : std::atoi(version.c_str() + at + 3) / 10;
}

std::string driver_rows(const Machine& machine, int needed) {
  if (machine.driver == 0) {
    return row("CUDA driver",
               "none that answers: no training and no calibration on a GPU; plans for a GPU work");
  }
  std::string text = row("CUDA driver", "for CUDA " + std::to_string(machine.driver / 1000) + "." +
                                            std::to_string(machine.driver % 1000 / 10));
  if (machine.driver / 1000 < needed) {
    text +=
        row("", "older than the CUDA " + std::to_string(needed) + " of this LibTorch: no training on a GPU");
  }
  for (size_t index = 0; index < machine.devices.size(); ++index) {
    const CudaDevice& device = machine.devices[index];
    text += row("  cuda:" + std::to_string(index),
                device.name + ", " + gibibytes(device.bytes) + ", compute capability " +
                    std::to_string(device.major) + "." + std::to_string(device.minor));
  }
  return machine.devices.empty() ? text + row("", "no device: no training on a GPU") : text;
}

std::string processor_rows(const Machine& machine) {
  std::string names;
  for (const std::string& one : machine.instructions) names += " " + one;
  std::string text =
      row("processor", std::to_string(machine.threads) + " threads;" + (names.empty() ? " no avx2" : names));
  const auto has = [&](const char* name) {
    return std::find(machine.instructions.begin(), machine.instructions.end(), name) !=
           machine.instructions.end();
  };
  if (!has("avx2")) text += row("", "without avx2 LibTorch's kernels for the CPU take several times as long");
  if (!has("avx512_bf16") && !has("amx_bf16")) {
    text += row("", "no bf16 instructions: bf16 on the CPU saves bytes and costs time");
  }
  return text;
}

std::string configuration_rows(const fs::path& folder) {
  if (folder.empty())
    return row("configurations", "none are shipped beside this program: --config needs a file");
  std::string text = row("configurations", folder.string());
  for (const std::string& name : configuration_names(folder)) text += row("", "--config " + name);
  return text;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  ask_driver(machine);
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) machine.threads = static_cast<unsigned>(CPU_COUNT(&set));
  machine.instructions = instructions_here();
  machine.bytes = memory_row("MemTotal");
  machine.available = memory_row("MemAvailable");
  return machine;
}

std::string doctor_text(const std::string& version, const TorchSearch& torch, const std::string& minor,
                        const Machine& machine, const fs::path& configurations) {
  const bool ready = !torch.root.empty();
  return row("dit-train", version + ", built for LibTorch " + minor) + torch_rows(torch, minor) +
         driver_rows(machine, cuda_major(torch.version)) + processor_rows(machine) +
         row("memory", machine.bytes == 0
                           ? "unknown: plans for the CPU are not compared with it"
                           : gibibytes(machine.bytes) + ", " + gibibytes(machine.available) + " available") +
         configuration_rows(configurations) +
         (ready ? "ready: dit-train can start\n" : "not ready: " + torch_advice(torch, minor));
}

}  // namespace dtk::launch
