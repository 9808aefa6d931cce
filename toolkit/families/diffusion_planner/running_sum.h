// at::cumsum whose gradient needs no at::flip, for which LibTorch has no shape kernel: a job with it can be
// planned.
#pragma once
#include <ATen/core/Tensor.h>

namespace dtk::diffusion_planner {

/// Of values (..., T, F) along T. Keeps nothing for backward.
at::Tensor running_sum(const at::Tensor& values);

}  // namespace dtk::diffusion_planner
