// Which device a run trains on. Programs link no CUDA; libtorch_cuda is loaded here, and only when a CUDA
// device is wanted.
#pragma once
#include <c10/core/Device.h>

#include <string>

namespace dtk {

/// Resolves "auto", "cpu", "cuda" or "cuda:i". "auto" is CUDA where a driver answers cuInit, else the CPU.
/// Loads libtorch_cuda for a CUDA device; so call it before anything asks torch about CUDA (its hooks are
/// looked up once). Throws ConfigError when CUDA is asked for and cannot be had.
c10::Device open_device(const std::string& name);

/// What the driver calls a CUDA device ("NVIDIA H200"); "" for any other, and if it does not say.
std::string device_name(c10::Device device);

}  // namespace dtk
