#include <dtk/policies/globs.h>
#include <dtk/toolkit/checkpoint_placement.h>
#include <dtk/toolkit/placement_search.h>
#include <dtk/toolkit/planned_run.h>
#include <dtk/toolkit/policy_places.h>
#include <dtk/toolkit/precision_choice.h>

#include <string>
#include <vector>

namespace dtk {
namespace {

using Paths = std::vector<std::string>;

LoadedConfig without_budget(LoadedConfig loaded, c10::Device device) {
  loaded.config.memory.budget.reset();  // a plan says by how much it is exceeded
  if (precision_is_open(loaded.config, device)) loaded.config.policies.precision.cpu = "fp32";
  return loaded;
}

LoadedConfig with_recomputed(LoadedConfig job, const Paths& recomputed) {
  policies::CheckpointOptions& checkpoint = job.config.policies.checkpoint;
  checkpoint.targets = recomputed;
  checkpoint.keep = "block";
  if (recomputed.empty()) checkpoint.enabled = policies::Enabled::off;
  return job;
}

// A sub-tree within another has no choice of its own.
void check_apart(const Paths& targets) {
  const std::string key = "policies.checkpoint.targets";
  for (const std::string& outer : targets) {
    for (const std::string& inner : targets) {
      if (!inner.starts_with(outer + ".")) continue;
      throw policies::PolicyError(key + " means " + outer + " and, within it, " + inner +
                                  "; policies.checkpoint.keep = \"auto\" chooses for each sub-tree whether "
                                  "it is computed again: name one of the two, or use keep = \"block\"");
    }
  }
}

Paths targets_among(const Paths& paths, const LoadedConfig& job) try {
  Paths targets =
      policies::matching_paths(job.config.policies.checkpoint.targets, paths, "policies.checkpoint.targets");
  check_apart(targets);
  return targets;
} catch (const policies::PolicyError& error) {
  throw with_place(error, job.places);
}

}  // namespace

CheckpointPlacement place_checkpoints(LoadedConfig& loaded, c10::Device device,
                                      const planner::RehearsalOptions& options) {
  const LoadedConfig job = without_budget(loaded, device);
  const PlacedJob placed = {[&](const Paths& recomputed) {
                              return plan_run(with_recomputed(job, recomputed), device, options).memory;
                            },
                            [&](const Paths& paths) { return targets_among(paths, job); }};
  CheckpointPlacement placement = search_placement(placed, device, loaded.config.memory.budget.value().bytes);
  adopt_placement(loaded, placement);
  return placement;
}

}  // namespace dtk
