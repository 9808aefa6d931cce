#include <dtk/toolkit/model_policies.h>

namespace dtk {

policies::PolicySet put_policies_in(const policies::PolicyOptions& options, models::Dit& model) {
  policies::Seam seam;
  seam.run = model.seam.run;
  seam.keep = model.seam.keep;
  seam.attention = model.seam.attention;
  seam.policies = model.seam.policies;
  const c10::Device device = model.parameters().front().second.device();
  policies::PolicySet set(options, {device, model.parameters(), model.paths()}, seam);
  model.seam.run = std::move(seam.run);
  model.seam.keep = std::move(seam.keep);
  model.seam.attention = std::move(seam.attention);
  model.seam.policies = std::move(seam.policies);
  return set;
}

}  // namespace dtk
