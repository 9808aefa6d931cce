// The Gaussian diffusion of the original DiT: x_t = √ᾱ_t x_0 + √(1-ᾱ_t) ε for steps t = 0 .. T-1.
//
// Ho et al. 2020 (process, posterior), Nichol and Dhariwal 2021 (learned variance, hybrid loss, cosine β),
// Song et al. 2021 (DDIM), Salimans and Ho 2022 (v). N batch, C channels, S image size.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "toolkit/diffusion/diffusion_names.h"

namespace dtk {

/// β_t of a process of `steps` steps: linear from 0.1/steps to 20/steps (1e-4 to 0.02 for 1000), which
/// needs kMinLinearSteps; cosine by ᾱ(s) = cos²((s + 0.008)/1.008 · π/2), at most 0.999.
std::vector<double> diffusion_betas(BetaKind kind, int64_t steps);

/// The numbers of a process, T values each. ᾱ is the product of 1-β up to t.
struct GaussianTables {
  /// Throws std::invalid_argument for fewer than two steps and for a β outside of (0, 1).
  explicit GaussianTables(std::vector<double> betas);

  std::vector<double> betas;
  std::vector<double> alphas_cumprod;                  // ᾱ
  std::vector<double> alphas_cumprod_prev;             // ᾱ of the step before; 1 at t = 0
  std::vector<double> posterior_variance;              // of q(x_{t-1} | x_t, x_0); 0 at t = 0
  std::vector<double> posterior_log_variance_clipped;  // entry 0 is that of t = 1
  std::vector<double> posterior_mean_coef1;            // of x_0
  std::vector<double> posterior_mean_coef2;            // of x_t
};

/// The process that keeps only the steps `kept` (ascending): β_i = 1 - ᾱ_i / ᾱ of the kept step before.
GaussianTables respaced(const GaussianTables& tables, const std::vector<int64_t>& kept);

/// The process that models are trained on: β of `kind`, all of `steps` steps. Respaced like any other, as the
/// original does: its β differ from diffusion_betas() in the 13th digit.
GaussianTables training_process(BetaKind kind, int64_t steps);

/// A process together with what the model predicts of it. Tensors (N, C, S, S) of any floating type; steps t
/// (N), int64, index this process's own steps. All of them lie on the device of the tables, and no call reads
/// a tensor's value on the host. Calls may come from several threads at once.
class GaussianDiffusion {
 public:
  /// The tables take 80 bytes a step on `device` (float64). With
  /// `learn_sigma` a model's output has 2C channels; without, the variance is β (at t = 0 the posterior's of
  /// t = 1). Throws std::invalid_argument for Prediction::velocity.
  GaussianDiffusion(const GaussianTables& tables, Prediction prediction, bool learn_sigma,
                    c10::Device device);

  int64_t steps() const { return rows_.size(0); }

  /// x_t of x_0 and ε.
  at::Tensor q_sample(const at::Tensor& x0, const at::Tensor& t, const at::Tensor& noise) const;

  /// Losses of each sample (N). `mse` is the mean squared error of what the model predicts. With learn_sigma
  /// `vb` is the term of the variational bound at t, in bits per dimension, in which the prediction is
  /// detached so that it trains the variance alone: KL of the true posterior to the model's normal, and at
  /// t = 0 the negative log likelihood of values in steps of 2/255. Undefined without.
  struct Losses {
    at::Tensor mse, vb;
    at::Tensor total() const;  ///< mse + vb
  };
  Losses losses(const at::Tensor& output, const at::Tensor& x0, const at::Tensor& x_t, const at::Tensor& t,
                const at::Tensor& noise) const;

  /// p(x_{t-1} | x_t) as the model's output has it, and the x_0 it rests on.
  struct Step {
    at::Tensor mean, log_variance, x0;
  };
  /// `clip_x0` limits x_0 to [-1, 1] before anything is derived from it.
  Step p_mean_variance(const at::Tensor& output, const at::Tensor& x_t, const at::Tensor& t,
                       bool clip_x0) const;

  /// x_{t-1} drawn from p: mean + [t ≠ 0] exp(½ log variance) noise.
  at::Tensor ddpm_step(const at::Tensor& output, const at::Tensor& x_t, const at::Tensor& t,
                       const at::Tensor& noise, bool clip_x0) const;

  /// √ᾱ' x_0 + √(1-ᾱ'-σ²) ε + [t ≠ 0] σ noise with σ = eta √((1-ᾱ')/(1-ᾱ)) √(1-ᾱ/ᾱ'), ᾱ' of the step before,
  /// and ε what x_0 says it is. `noise` may be undefined where eta = 0, and then no noise is added.
  at::Tensor ddim_step(const at::Tensor& output, const at::Tensor& x_t, const at::Tensor& t, double eta,
                       const at::Tensor& noise, bool clip_x0) const;

 private:
  enum Column : int64_t {
    kAlphaCumprod,
    kAlphaCumprodPrev,
    kSqrtAlphaCumprod,
    kSqrtOneMinusAlphaCumprod,
    kPosteriorMeanX0,
    kPosteriorMeanXt,
    kLogVarianceLow,   // of the true posterior
    kLogVarianceHigh,  // log β
    kLogVarianceFixed,
    kColumns
  };
  class Rows;  // of some steps

  at::Tensor x0_from(const at::Tensor& output, const at::Tensor& x_t, const Rows& row, bool clip) const;
  at::Tensor posterior_mean(const at::Tensor& x0, const at::Tensor& x_t, const Rows& row) const;
  at::Tensor epsilon_from(const at::Tensor& x0, const at::Tensor& x_t, const Rows& row) const;
  at::Tensor target(const at::Tensor& x0, const at::Tensor& noise, const Rows& row) const;
  at::Tensor log_variance(const at::Tensor& output, const at::Tensor& like, const Rows& row) const;
  at::Tensor variational_bound(const Step& model, const at::Tensor& x0, const at::Tensor& x_t,
                               const at::Tensor& t, const Rows& row) const;

  const Prediction prediction_;
  const bool learn_sigma_;
  at::Tensor rows_;  // (T, kColumns)
};

}  // namespace dtk
