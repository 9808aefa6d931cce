// Rectified flow (Liu et al. 2022): straight paths x_t = (1 - t)·x_0 + t·ε from images (t = 0) to noise (t =
// 1), whose velocity ε - x_0 the model predicts. N batch, C channels, S image size.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "toolkit/diffusion/denoiser.h"
#include "toolkit/diffusion/diffusion_names.h"

namespace dtk {

/// The model is fed this times t, so that it sees the range of a diffusion of 1000 steps.
inline constexpr double kFlowTimeScale = 1000;

/// The mean squared error to the velocity over all elements (a scalar, fp32) at x_t of x0 (N, C, S, S) with
/// labels y (N). Draws come from `generator`, which must belong to x0's device.
at::Tensor rectified_flow_loss(const Denoiser& model, at::Tensor x0, at::Tensor y, FlowTime time,
                               const at::Generator& generator);

}  // namespace dtk
