// How much memory devices and this machine have.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "toolkit/config/config_io.h"

namespace dtk {

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
/// That tensors on `device` can take now: of this machine's memory, or what the device's driver calls free
/// with what LibTorch's allocator holds unused.
std::optional<int64_t> available_bytes(c10::Device device);

}  // namespace dtk
