// Options of diffusion processes and samplers: tables of the families that have such. Free of LibTorch.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "toolkit/diffusion/diffusion_names.h"

namespace dtk {

struct DiffusionOptions {
  Prediction objective = Prediction::velocity;  // what the model predicts; epsilon: as the original DiT
  FlowTime time = FlowTime::logit_normal;       // rectified flow
  int64_t steps = 1000;                         // the others: steps of the process
  BetaKind betas = BetaKind::linear;            // the others

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [objective, time, steps, betas] = self;
    visit("objective", objective, "");
    visit("time", time, "");
    visit("steps", steps, "[2, 100000]");
    visit("betas", betas, "");
  }
  friend bool operator==(const DiffusionOptions&, const DiffusionOptions&) = default;
};

struct SamplerOptions {
  SamplerKind sampler = SamplerKind::euler;             // absent: what suits the objective (samplers.h)
  std::optional<std::string> respacing = std::nullopt;  // ddpm, ddim: which steps (respacing.h)
  double eta = 0.0;                                     // ddim: share of ddpm's noise
  bool clip_x0 = false;                                 // ddpm, ddim: predicted images are limited to [-1, 1]

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [sampler, respacing, eta, clip_x0] = self;
    visit("sampler", sampler, "");
    visit("respacing", respacing, "");
    visit("eta", eta, "[0, 1]");
    visit("clip_x0", clip_x0, "");
  }
  friend bool operator==(const SamplerOptions&, const SamplerOptions&) = default;
};

/// Steps and times of DPM-Solver++.
struct DpmSolverOptions {
  int64_t steps = 10;
  double first = 1.0;  // time that x is taken to be at
  double last = 1e-3;  // time of the result, before it is denoised

  friend bool operator==(const DpmSolverOptions&, const DpmSolverOptions&) = default;
};

}  // namespace dtk
