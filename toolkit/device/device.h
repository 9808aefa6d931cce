// Which device a run trains on. Programs link no CUDA; libtorch_cuda is loaded here, and only when a CUDA
// device is wanted.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
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

/// `settings` of LibTorch's allocator with the limit of `budget` of `total` bytes put behind.
std::string with_limit(const std::string& settings, const ByteSize& budget, int64_t total);

/// What the driver calls a CUDA device ("NVIDIA H200"); "" for any other, and if it does not say.
std::string device_name(c10::Device device);

}  // namespace dtk
