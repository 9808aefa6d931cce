// Training objectives and samplers. N batch, C channels, S image size.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <dtk/toolkit/config.h>

#include <functional>

namespace dtk {

/// A model's output for x (N, C, S, S), time t (N) in 0 .. 1000 and labels y (N).
using Denoiser = std::function<at::Tensor(at::Tensor x, at::Tensor t, at::Tensor y)>;

/// Rectified flow: x_t = (1 - t)·x0 + t·ε, target v = ε - x0, mean squared error over all elements (a scalar,
/// fp32); t is uniform or logit-normal(0, 1), and the model is fed 1000·t. x0 (N, C, S, S), y (N). Draws come
/// from `generator`, which must belong to x0's device.
at::Tensor rectified_flow_loss(const Denoiser& model, at::Tensor x0, at::Tensor y,
                               const DiffusionOptions& options, const at::Generator& generator);

/// Euler's method from t = 1 (noise, N, C, S, S) to t = 0 in `steps` equal steps of dx/dt = v. Calls the
/// model `steps` times. Asks `go_on`, if given, before each step with how many are done; an undefined tensor
/// if that says no.
at::Tensor euler_sample(const Denoiser& model, at::Tensor noise, const at::Tensor& y, int64_t steps,
                        const std::function<bool(int64_t done)>& go_on = {});

}  // namespace dtk
