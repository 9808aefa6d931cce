// What training objectives and samplers know of a model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace dtk {

/// A model's output for x (N, C, S, S), time t (N) and labels y (N): (N, C, S, S), or with a learned variance
/// (N, 2C, S, S), whose second half is about the variance. The time is 1000 times that of a rectified flow,
/// or a step of a diffusion.
using Denoiser = std::function<at::Tensor(at::Tensor x, at::Tensor t, at::Tensor y)>;

/// Asked before each step of a sampler with how many of all steps are done; false gives up.
using KeepGoing = std::function<bool(int64_t done, int64_t steps)>;

}  // namespace dtk
