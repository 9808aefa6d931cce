// Policies in the driving model.
#pragma once
#include <dtk/models/diffusion_planner.h>
#include <dtk/models/diffusion_planner_modules.h>
#include <dtk/policies/policy_set.h>

#include <utility>

namespace dtk::test {

/// Puts the policies of `options` into the model's seam. Throws policies::PolicyError as PolicySet does.
inline policies::PolicySet put_in(const policies::PolicyOptions& options, models::DiffusionPlanner& model) {
  policies::Seam seam;
  policies::PolicySet set(
      options, {model.parameters().front().second.device(), model.parameters(), model.paths()}, seam);
  model.seam.run = std::move(seam.run);
  model.seam.keep = std::move(seam.keep);
  model.seam.attention = std::move(seam.attention);
  model.seam.fuses = std::move(seam.fuses);
  return set;
}

/// None, but that attention is fused where there is a kernel for it: what the published code trains with.
inline policies::PolicyOptions no_policies() {
  policies::PolicyOptions options = policies::PolicyOptions::all_off();
  options.attention.enabled = policies::Enabled::by_default;
  return options;
}

/// All on their defaults for this model.
inline policies::PolicyOptions default_policies(const models::DiffusionPlannerOptions& model) {
  policies::PolicyOptions options;
  options.checkpoint.targets = models::checkpoint_targets(model);
  options.precision.fp32 = models::fp32_ends(model);
  return options;
}

}  // namespace dtk::test
