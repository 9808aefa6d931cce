#include "toolkit/device/device.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/device/cuda_driver.h"
#include "toolkit/device/device_memory.h"

namespace dtk {
namespace {

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
  if (code != 0) return {0, "the CUDA driver answers with error " + std::to_string(code)};
  CudaDriver driver;
  if (count(&driver.devices) != 0 || driver.devices == 0) return {0, "the CUDA driver sees no device"};
  return driver;
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
  const char* reason = dlerror();
  throw ConfigError("--device " + name + ": this LibTorch cannot be used with CUDA (" +
                    (reason != nullptr ? reason : "libtorch_cuda.so did not load") +
                    "); install the full torch wheel with tests/run, or use --device cpu");
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
  if (name == "cpu") return c10::Device(c10::kCPU);
  const CudaDriver driver = ask_driver();
  if (name == "auto" && driver.devices == 0) return c10::Device(c10::kCPU);
  if (driver.devices == 0) {
    throw ConfigError("--device " + name + ": " + driver.problem + "; use --device cpu or --device auto");
  }
  const c10::Device device(name == "auto" ? "cuda:0" : (name == "cuda" ? "cuda:0" : name));
  if (device.index() >= driver.devices) {
    throw ConfigError("--device " + name + ": this machine has " + std::to_string(driver.devices) +
                      " CUDA device(s); allowed: cuda:0 to cuda:" + std::to_string(driver.devices - 1));
  }
  if (budget) limit_allocator(*budget, device);
  load_libtorch_cuda(name);
  // Before anything else: LibTorch's allocator knows no device until its first initialisation.
  at::globalContext().lazyInitDevice(device.type());
  at::accelerator::setDeviceIndex(device.index());
  return device;
}

}  // namespace dtk
