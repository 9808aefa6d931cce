// From noise to samples: the steps of the samplers, without models or batches (those are in sampling.h).
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "toolkit/diffusion/denoiser.h"
#include "toolkit/diffusion/options.h"

namespace dtk {

/// Standard normal noise (N, C, S, S) for one step, on the samples' device.
using DrawNoise = std::function<at::Tensor()>;

/// One way to go from noise x (N, C, S, S) to samples in steps() steps. Stateless between steps.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t steps() const = 0;
  /// x after step `index`, counted from 0, for labels y (N). Calls `noise` at most once, and never if the
  /// sampler is deterministic.
  virtual at::Tensor step(int64_t index, const Denoiser& model, at::Tensor x, const at::Tensor& y,
                          const DrawNoise& noise) const = 0;
};

/// The one that sample.sampler names:
///   euler   dx/dt = v from t = 1 to 0 in equal steps, one evaluation of the model each;
///   heun    the same with the mean of v at both ends of a step: two evaluations, and an error of second
///           order. The last step is Euler's, since v at t = 0 is hardly trained;
///   ddpm    draws x_{t-1} from p(x_{t-1} | x_t) (gaussian_diffusion.h), down to t = 0;
///   ddim    deterministic with sample.eta = 0, as ddpm's noise with 1.
/// The last two go through the steps that respacing.h keeps, of which there are `steps`; the model is given
/// the original ones. Their tables lie on `device`.
std::unique_ptr<const Sampler> make_sampler(const DiffusionOptions& diffusion, const SamplerOptions& options,
                                            int64_t steps, bool learn_sigma, c10::Device device);

}  // namespace dtk
