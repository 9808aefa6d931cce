#include "toolkit/device/device.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/cpu/Utils.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/device/device_word.h"

namespace dtk {
namespace {

constexpr std::array<const char*, 2> kBf16Instructions = {"avx512_bf16", "amx_bf16"};

bool is_cpu(const std::string& name) {
  return policies::parse_enum<DeviceWord>(name) == DeviceWord::cpu;
}

struct CudaDriver {
  int devices = 0;
  std::string problem;  // why there is none
};

CudaDriver ask_driver() {
  void* const library = cuda_driver();
  if (library == nullptr) return {0, "no CUDA driver is installed (libcuda.so.1 was not found)"};
  auto* const init = cuda_function<int(unsigned)>(library, "cuInit");
  auto* const count = cuda_function<int(int*)>(library, "cuDeviceGetCount");
  if (init == nullptr || count == nullptr) return {0, "libcuda.so.1 is not a CUDA driver"};
  const int code = init(0);
  if (code != 0) return {0, fmt::format("the CUDA driver answers with error {}", code)};
  CudaDriver driver;
  if (count(&driver.devices) != 0 || driver.devices == 0) return {0, "the CUDA driver sees no device"};
  return driver;
}

std::optional<int64_t> cuda_memory(int index) {
  void* const library = cuda_driver();
  if (library == nullptr) return std::nullopt;
  auto* const init = cuda_function<int(unsigned)>(library, "cuInit");
  auto* const get = cuda_function<int(int*, int)>(library, "cuDeviceGet");
  auto* const total = cuda_function<int(size_t*, int)>(library, "cuDeviceTotalMem_v2");
  int handle = 0;
  size_t bytes = 0;
  if (init == nullptr || get == nullptr || total == nullptr) return std::nullopt;
  if (init(0) != 0 || get(&handle, index) != 0 || total(&bytes, handle) != 0) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

// Before the library is loaded: it reads the settings once.
void limit_allocator(const ByteSize& budget, c10::Device device) {
  const std::optional<int64_t> total = device_memory(device);
  if (!total) return;  // memory.budget is then checked after each step
  const char* const own = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  const char* const settings = own != nullptr ? own : std::getenv("PYTORCH_ALLOC_CONF");
  setenv("PYTORCH_CUDA_ALLOC_CONF", with_limit(settings != nullptr ? settings : "", budget, *total).c_str(),
         /*replace=*/1);
}

void load_libtorch_cuda(const std::string& name) {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  const char* const reason = dlerror();
  throw ConfigError(
      fmt::format("--device {}: this LibTorch cannot be used with CUDA ({}); install the full torch wheel "
                  "with tests/run, or use --device cpu",
                  name, reason != nullptr ? reason : "libtorch_cuda.so did not load"));
}

}  // namespace

std::string device_name(c10::Device device) {
  if (!device.is_cuda()) return "";
  void* const library = cuda_driver();
  if (library == nullptr) return "";
  auto* const get = cuda_function<int(int*, int)>(library, "cuDeviceGet");
  auto* const name = cuda_function<int(char*, int, int)>(library, "cuDeviceGetName");
  int handle = 0;
  char text[256] = "";
  if (get == nullptr || name == nullptr || get(&handle, device.index()) != 0) return "";
  return name(text, sizeof text, handle) == 0 ? text : "";
}

std::string with_limit(const std::string& settings, const ByteSize& budget, int64_t total) {
  const double fraction = budget.percent != 0
                              ? budget.percent / 100
                              : static_cast<double>(budget.bytes) / static_cast<double>(total);
  return fmt::format("{}{}per_process_memory_fraction:{:.9f}", settings, settings.empty() ? "" : ",",
                     std::min(1.0, fraction));
}

c10::Device open_device(const std::string& name, const std::optional<ByteSize>& budget) {
  const auto word = policies::parse_enum<DeviceWord>(name);  // none: "cuda:i"
  if (word == DeviceWord::cpu) return c10::Device(c10::kCPU);
  const CudaDriver driver = ask_driver();
  if (word == DeviceWord::automatic && driver.devices == 0) return c10::Device(c10::kCPU);
  if (driver.devices == 0) {
    throw ConfigError(
        fmt::format("--device {}: {}; use --device cpu or --device auto", name, driver.problem));
  }
  const c10::Device device(word ? "cuda:0" : name);
  if (device.index() >= driver.devices) {
    throw ConfigError(
        fmt::format("--device {}: this machine has {} CUDA device(s); allowed: cuda:0 to cuda:{}", name,
                    driver.devices, driver.devices - 1));
  }
  if (budget) limit_allocator(*budget, device);
  load_libtorch_cuda(name);
  // Before anything else: LibTorch's allocator knows no device until its first initialisation.
  at::globalContext().lazyInitDevice(device.type());
  at::accelerator::setDeviceIndex(device.index());
  return device;
}

std::string device_of_rank(const std::string& name, int64_t rank_here) {
  return device_of_rank(name, rank_here, is_cpu(name) ? 0 : ask_driver().devices,
                        std::getenv("CUDA_VISIBLE_DEVICES") != nullptr);
}

std::string device_of_rank(const std::string& name, int64_t rank_here, int64_t devices, bool chosen) {
  if (is_cpu(name)) return name;
  if (name.starts_with("cuda:")) {
    throw ConfigError("--device " + name +
                      ": each of several ranks takes the GPU of its number on its host; use --device cuda");
  }
  if (devices == 0) return name;  // open_device() knows why
  if (devices == 1 && chosen) return "cuda:0";
  if (rank_here < devices) return fmt::format("cuda:{}", rank_here);
  throw ConfigError(fmt::format(
      "--device {}: CUDA devices here: {}, and this is rank {} of this host, from 0, by LOCAL_RANK or else "
      "RANK; start no more ranks on a host than it has devices, set LOCAL_RANK, or use --device cpu",
      name, devices, rank_here));
}

std::optional<int64_t> device_memory(c10::Device device) {
  if (device.is_cuda()) return cuda_memory(device.has_index() ? device.index() : 0);
  const int64_t pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && bytes > 0 ? std::optional(pages * bytes) : std::nullopt;
}

int64_t part_of_device(double percent, c10::Device device, const std::string& place) {
  const std::optional<int64_t> bytes = device_memory(device);
  if (!bytes) {
    throw ConfigError(
        fmt::format("{}: a part of the device present, and this machine has no {}; write a number of bytes, "
                    "such as \"24GB\", \"24GiB\" or \"24e9\"",
                    place, device.str()));
  }
  return static_cast<int64_t>(std::floor(static_cast<double>(*bytes) * percent / 100));
}

void resolve_budget(LoadedConfig& loaded, c10::Device device) {
  auto& budget = loaded.config.memory.budget;
  if (!budget || budget->percent == 0) return;
  const std::string key = "memory.budget", written = toml_text(*budget);
  const auto place = loaded.locations.find(key);
  budget = ByteSize{part_of_device(budget->percent, device,
                                   place != loaded.locations.end() ? place->second : key + " = " + written)};
  loaded.origins[key] = {Origin::Source::measured,
                         written.substr(1, written.size() - 2) + " of this " + device.str()};
}

std::optional<int64_t> available_bytes(std::istream& meminfo) {
  for (std::string name; meminfo >> name; meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (name != "MemAvailable:") continue;
    int64_t kibibytes = 0;
    if (!(meminfo >> kibibytes) || kibibytes < 0) return std::nullopt;
    return kibibytes * 1024;
  }
  return std::nullopt;
}

std::optional<int64_t> available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  return available_bytes(meminfo);
}

std::optional<int64_t> resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  if (!(statm >> pages >> resident)) return std::nullopt;
  return resident * sysconf(_SC_PAGESIZE);
}

std::optional<int64_t> available_bytes(c10::Device device) {
  if (device.is_cpu()) return available_bytes();
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device.type());
  const auto stats = allocator->getDeviceStats(device.index());
  const size_t free = allocator->getMemoryInfo(device.index()).first;
  return static_cast<int64_t>(free) + stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
}

bool cpu_has_bf16() {
  const auto known = at::cpu::get_cpu_capabilities();
  return std::any_of(kBf16Instructions.begin(), kBf16Instructions.end(), [&](const char* name) {
    const auto found = known.find(name);
    return found != known.end() && found->second.toBool();
  });
}

}  // namespace dtk
