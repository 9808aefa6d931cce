// Options of diffusion processes and samplers: tables of the families that have such. Free of LibTorch.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dtk {

struct DiffusionOptions {
  std::string objective = "rectified_flow";  // what the model predicts; epsilon: as the original DiT
  std::string time = "logit_normal";         // rectified flow: distribution of the training time t in (0, 1)
  int64_t steps = 1000;                      // the others: steps of the process
  std::string betas = "linear";              // the others: variance that each step adds

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [objective, time, steps, betas] = self;
    visit("objective", objective, "rectified_flow | epsilon | v | x0");
    visit("time", time, "uniform | logit_normal");
    visit("steps", steps, "[2, 100000]");
    visit("betas", betas, "linear | cosine");
  }
  friend bool operator==(const DiffusionOptions&, const DiffusionOptions&) = default;
};

struct SamplerOptions {
  std::string sampler = "euler";                        // absent: what suits the objective (samplers.h)
  std::optional<std::string> respacing = std::nullopt;  // ddpm, ddim: which steps (respacing.h)
  double eta = 0.0;                                     // ddim: share of ddpm's noise
  bool clip_x0 = false;                                 // ddpm, ddim: predicted images are limited to [-1, 1]

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [sampler, respacing, eta, clip_x0] = self;
    visit("sampler", sampler, "euler | heun | ddpm | ddim");
    visit("respacing", respacing, "");
    visit("eta", eta, "[0, 1]");
    visit("clip_x0", clip_x0, "");
  }
  friend bool operator==(const SamplerOptions&, const SamplerOptions&) = default;
};

}  // namespace dtk
