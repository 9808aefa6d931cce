// What the names of [diffusion] and [sample] stand for. The one place that decides by name; free of LibTorch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtk {

/// What a model's output stands for: ε - x_0 of rectified flow, or one of three forms of the same knowledge
/// in a Gaussian diffusion, of which v = √ᾱ ε - √(1-ᾱ) x_0.
enum class Prediction { velocity, epsilon, v, x0 };

/// diffusion.objective. Throws std::invalid_argument for another name.
Prediction prediction_of(const std::string& objective);

/// False for rectified flow, which has a continuous time and neither β nor a variance.
bool is_gaussian(const std::string& objective);

/// Samplers that draw from a model of this objective, the default first: euler for rectified flow, ddpm for
/// epsilon as in the original DiT, and ddim for v and x0, whose variance is mostly a fixed one, with which
/// ddpm leaves noise unless it makes hundreds of steps.
const std::vector<std::string>& samplers_for(const std::string& objective);

/// True for samplers that go through (some of) the steps of a Gaussian diffusion.
bool has_diffusion_steps(const std::string& sampler);
/// sample.steps where nobody sets it: 250 for ddpm, as in the original DiT, 50 for ddim, 25 for the others.
int64_t default_steps(const std::string& sampler);
/// The linear β of fewer steps reach 1.
inline constexpr int64_t kMinLinearSteps = 21;
/// A process of one step has no posterior variance of its own.
inline constexpr int64_t kMinDiffusionSteps = 2;

}  // namespace dtk
