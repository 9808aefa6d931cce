// Options of diffusion processes and samplers: tables of the families that have such. Free of LibTorch.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "toolkit/diffusion/diffusion_names.h"

namespace dtk {

struct DiffusionOptions {
  Prediction objective = Prediction::velocity;
  FlowTime time = FlowTime::logit_normal;
  int64_t steps = 1000;
  BetaKind betas = BetaKind::linear;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [objective, time, steps, betas] = self;
    visit("objective", objective, "", "what the model predicts");
    visit("time", time, "", "rectified flow: how times of training are drawn");
    visit("steps", steps, "[2, 100000]", "epsilon, v, x0: steps of the process");
    visit("betas", betas, "", "epsilon, v, x0: how their noise grows");
  }
  friend bool operator==(const DiffusionOptions&, const DiffusionOptions&) = default;
};

struct SamplerOptions {
  SamplerKind sampler = SamplerKind::euler;
  std::optional<std::string> respacing = std::nullopt;
  double eta = 0.0;
  bool clip_x0 = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [sampler, respacing, eta, clip_x0] = self;
    visit("sampler", sampler, "", "its default follows from the objective");
    visit("respacing", respacing, "",
          "ddpm, ddim: steps of the process that are taken, such as \"250\", \"10,15,20\" or \"ddim50\"");
    visit("eta", eta, "[0, 1]", "ddim: part of ddpm's noise");
    visit("clip_x0", clip_x0, "", "ddpm, ddim: limit predicted images to [-1, 1]");
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
