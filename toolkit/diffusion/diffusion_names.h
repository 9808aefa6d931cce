// What [diffusion] and [sample] choose among; free of LibTorch.
#pragma once
#include <dtk/policies/enum_text.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dtk {

/// What a model's output stands for: ε - x_0 of rectified flow, or one of three forms of the same knowledge
/// in a Gaussian diffusion, of which v = √ᾱ ε - √(1-ᾱ) x_0.
enum class Prediction { velocity, epsilon, v, x0 };
constexpr auto enum_texts(Prediction) {
  return std::array{"rectified_flow", "epsilon", "v", "x0"};
}

/// Distribution of rectified flow's training time t in (0, 1); logit-normal(0, 1) as in Esser et al. 2024.
enum class FlowTime { uniform, logit_normal };
constexpr auto enum_texts(FlowTime) {
  return std::array{"uniform", "logit_normal"};
}

/// Variance that each step of a Gaussian diffusion adds (gaussian_diffusion.h).
enum class BetaKind { linear, cosine };
constexpr auto enum_texts(BetaKind) {
  return std::array{"linear", "cosine"};
}

enum class SamplerKind { euler, heun, ddpm, ddim };
constexpr auto enum_texts(SamplerKind) {
  return std::array{"euler", "heun", "ddpm", "ddim"};
}

/// False for rectified flow, which has a continuous time and neither β nor a variance.
bool is_gaussian(Prediction objective);

/// Samplers that draw from a model of this objective, the default first: euler for rectified flow, ddpm for
/// epsilon as in the original DiT, and ddim for v and x0, whose variance is mostly a fixed one, with which
/// ddpm leaves noise unless it makes hundreds of steps.
const std::vector<SamplerKind>& samplers_for(Prediction objective);
bool draws_from(SamplerKind sampler, Prediction objective);
std::string sampler_choices(Prediction objective);  ///< "euler or heun"

/// True for samplers that go through (some of) the steps of a Gaussian diffusion.
bool has_diffusion_steps(SamplerKind sampler);
/// sample.steps where nobody sets it: 250 for ddpm, as in the original DiT, 50 for ddim, 25 for the others.
int64_t default_steps(SamplerKind sampler);
/// The linear β of fewer steps reach 1.
inline constexpr int64_t kMinLinearSteps = 21;
/// A process of one step has no posterior variance of its own.
inline constexpr int64_t kMinDiffusionSteps = 2;

}  // namespace dtk
