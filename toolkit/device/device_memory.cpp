#include "toolkit/device/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/device/cuda_driver.h"

namespace dtk {
namespace {

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

}  // namespace

std::optional<int64_t> device_memory(c10::Device device) {
  if (device.is_cuda()) return cuda_memory(device.has_index() ? device.index() : 0);
  const int64_t pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && bytes > 0 ? std::optional(pages * bytes) : std::nullopt;
}

int64_t part_of_device(double percent, c10::Device device, const std::string& place) {
  const std::optional<int64_t> bytes = device_memory(device);
  if (!bytes) {
    throw ConfigError(place + ": a part of the device present, and this machine has no " + device.str() +
                      "; write a number of bytes, such as \"24GB\", \"24GiB\" or \"24e9\"");
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

std::optional<int64_t> available_bytes(c10::Device device) {
  if (device.is_cpu()) return available_bytes();
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device.type());
  const auto stats = allocator->getDeviceStats(device.index());
  const size_t free = allocator->getMemoryInfo(device.index()).first;
  return static_cast<int64_t>(free) + stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
}

}  // namespace dtk
