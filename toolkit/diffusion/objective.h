// What a model is trained to predict, and how far off it is.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <optional>

#include "toolkit/core/batch_part.h"
#include "toolkit/diffusion/denoiser.h"
#include "toolkit/diffusion/options.h"

namespace dtk {

/// A model of rectified flow is fed this times t, so that it sees the range of a diffusion of 1000 steps.
inline constexpr double kFlowTimeScale = 1000;

class Objective {
 public:
  virtual ~Objective() = default;
  /// The mean loss over x0 (N, C, S, S) with labels y (N): a scalar, fp32. Times and noise come from
  /// `generator`, which must belong to x0's device; where x0 is a `part` of a batch, they are
  /// drawn for all of it and x0's taken. Reads no tensor's value on the host; calls with different generators
  /// may come from several threads at once.
  virtual at::Tensor loss(const Denoiser& model, at::Tensor x0, at::Tensor y, const at::Generator& generator,
                          const std::optional<BatchPart>& part = {}) const = 0;
};

/// The one that [diffusion] names, for a model on `device`: a Gaussian diffusion (gaussian_diffusion.h), or
/// rectified flow (Liu et al. 2022): straight paths x_t = (1 - t)·x_0 + t·ε from images (t = 0) to noise (t =
/// 1), whose velocity ε - x_0 the model predicts; the loss is the mean squared error to it over all elements.
std::unique_ptr<const Objective> make_objective(const DiffusionOptions& options, bool learn_sigma,
                                                c10::Device device);

}  // namespace dtk
