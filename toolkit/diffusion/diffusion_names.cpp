#include "toolkit/diffusion/diffusion_names.h"

#include <algorithm>

#include "toolkit/core/text.h"

namespace dtk {

bool is_gaussian(Prediction objective) {
  return objective != Prediction::velocity;
}

const std::vector<SamplerKind>& samplers_for(Prediction objective) {
  using enum SamplerKind;
  static const std::vector<SamplerKind> flow = {euler, heun}, original = {ddpm, ddim},
                                        fixed_variance = {ddim, ddpm};
  switch (objective) {
    case Prediction::velocity:
      return flow;
    case Prediction::epsilon:
      return original;
    default:
      return fixed_variance;
  }
}

bool draws_from(SamplerKind sampler, Prediction objective) {
  const std::vector<SamplerKind>& able = samplers_for(objective);
  return std::find(able.begin(), able.end(), sampler) != able.end();
}

std::string sampler_choices(Prediction objective) {
  std::vector<std::string> names;
  for (const SamplerKind sampler : samplers_for(objective)) names.push_back(policies::text_of(sampler));
  return listed(names, " or ");
}

bool has_diffusion_steps(SamplerKind sampler) {
  return sampler == SamplerKind::ddpm || sampler == SamplerKind::ddim;
}

int64_t default_steps(SamplerKind sampler) {
  return sampler == SamplerKind::ddpm ? 250 : sampler == SamplerKind::ddim ? 50 : 25;
}

}  // namespace dtk
