#include "toolkit/diffusion/diffusion_names.h"

#include <stdexcept>

namespace dtk {

Prediction prediction_of(const std::string& objective) {
  if (objective == "rectified_flow") return Prediction::velocity;
  if (objective == "epsilon") return Prediction::epsilon;
  if (objective == "v") return Prediction::v;
  if (objective == "x0") return Prediction::x0;
  throw std::invalid_argument("\"" + objective + "\" is no diffusion.objective");
}

bool is_gaussian(const std::string& objective) {
  return prediction_of(objective) != Prediction::velocity;
}

const std::vector<std::string>& samplers_for(const std::string& objective) {
  static const std::vector<std::string> flow = {"euler", "heun"}, original = {"ddpm", "ddim"},
                                        fixed_variance = {"ddim", "ddpm"};
  switch (prediction_of(objective)) {
    case Prediction::velocity:
      return flow;
    case Prediction::epsilon:
      return original;
    default:
      return fixed_variance;
  }
}

bool has_diffusion_steps(const std::string& sampler) {
  return sampler == "ddpm" || sampler == "ddim";
}

int64_t default_steps(const std::string& sampler) {
  return sampler == "ddpm" ? 250 : sampler == "ddim" ? 50 : 25;
}

}  // namespace dtk
