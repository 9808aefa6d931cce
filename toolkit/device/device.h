// Which device a run trains on, and how much memory it and this machine have. Programs link no CUDA and run
// where none is installed: functions of its driver are looked up at run time, and libtorch_cuda is loaded
// only when a CUDA device is wanted.
#pragma once
#include <c10/core/Device.h>
#include <dlfcn.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "toolkit/config/config_io.h"

namespace dtk {

/// Resolves "auto", "cpu", "cuda" or "cuda:i". "auto" is CUDA where a driver answers cuInit, else the CPU.
/// Loads libtorch_cuda for a CUDA device; so call it before anything asks torch about CUDA (its hooks are
/// looked up once). Throws ConfigError when CUDA is asked for and cannot be had.
///
/// `budget`, on a CUDA device, is given to LibTorch's caching allocator as the fraction of the device's
/// memory that it may reserve, beside what the environment's PYTORCH_CUDA_ALLOC_CONF says: what is beyond
/// throws c10::OutOfMemoryError. Reserved memory is the tensors' and the allocator's own unused blocks.
c10::Device open_device(const std::string& name, const std::optional<ByteSize>& budget = std::nullopt);

/// The name for open_device() of rank `rank_here` of those on this host, of several: "auto" and "cuda" are
/// "cuda:<rank_here>", or "cuda:0" where a launcher shows each rank one device alone, by
/// CUDA_VISIBLE_DEVICES. Throws ConfigError where there are fewer devices, and for "cuda:i", which would be
/// one for all.
std::string device_of_rank(const std::string& name, int64_t rank_here);
/// The same on a host with so many devices; `chosen`: by that variable.
std::string device_of_rank(const std::string& name, int64_t rank_here, int64_t devices, bool chosen);

/// `settings` of LibTorch's allocator with the limit of `budget` of `total` bytes put behind.
std::string with_limit(const std::string& settings, const ByteSize& budget, int64_t total);

/// What the driver calls a CUDA device ("NVIDIA H200"); "" for any other, and if it does not say.
std::string device_name(c10::Device device);

/// Bytes of memory of a device that is present: of a CUDA device by its driver, of the CPU by Linux; nothing
/// where there is none. Usable without LibTorch's CUDA.
std::optional<int64_t> device_memory(c10::Device device);

/// `percent` of it. Throws ConfigError beginning with `place` if there is no such device.
int64_t part_of_device(double percent, c10::Device device, const std::string& place);

/// Replaces memory.budget = "80%" by bytes of `device`. Throws as part_of_device().
void resolve_budget(LoadedConfig& loaded, c10::Device device);

/// Bytes that Linux can still give without swapping, by the text of /proc/meminfo; nothing if it does not
/// say.
std::optional<int64_t> available_bytes(std::istream& meminfo);
/// Of this machine, now.
std::optional<int64_t> available_bytes();
/// Memory of the machine that this process holds now; nothing if Linux does not say.
std::optional<int64_t> resident_bytes();
/// That tensors on `device` can take now: of this machine's memory, or what the device's driver calls free
/// with what LibTorch's allocator holds unused.
std::optional<int64_t> available_bytes(c10::Device device);

/// Whether this CPU has instructions for products in bf16; without them bf16 costs time.
bool cpu_has_bf16();

/// libcuda.so.1, or null where there is none. Never unloaded.
inline void* cuda_driver() {
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

/// Null if the library has none of that name.
template <class Function>
Function* cuda_function(void* driver, const char* name) {
  return reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace dtk
