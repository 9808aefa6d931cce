#include <dtk/policies/advice.h>
#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/internal/repeated_modules.h>

#include <string>
#include <vector>

#include "toolkit/config/locations.h"
#include "toolkit/core/format.h"
#include "toolkit/plan/placement_search.h"
#include "toolkit/plan/plan.h"
#include "toolkit/plan/planned_run.h"
#include "toolkit/report/placement.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/precision_choice.h"

namespace dtk {

using policies::advise;
namespace {

using Paths = std::vector<std::string>;

LoadedConfig without_budget(LoadedConfig loaded, c10::Device device) {
  loaded.config.memory.budget.reset();  // a plan says by how much it is exceeded
  if (precision_is_open(loaded.config, device))
    loaded.config.policies.precision.cpu = policies::CpuPrecision::fp32;
  return loaded;
}

LoadedConfig with_recomputed(LoadedConfig job, const Paths& recomputed, const ResultsByModule& keeps) {
  policies::CheckpointOptions& checkpoint = job.config.policies.checkpoint;
  recompute(checkpoint, recomputed, keeps);
  if (recomputed.empty()) checkpoint.enabled = policies::Enabled::off;
  return job;
}

// Some or all of the results that a module offers, and its products.
std::vector<Paths> sets_of(const Paths& results) {
  std::vector<Paths> all;
  const size_t sets = size_t{1} << results.size();
  for (size_t set = 1; set < sets; ++set) {
    Paths names;
    for (size_t i = 0; i < results.size(); ++i)
      if ((set >> i & 1) != 0) names.push_back(results[i]);
    all.push_back(std::move(names));
  }
  // All that costs much; what is left is element-wise, and without attention's result that.
  const std::string products = "aten::addmm";
  all.push_back({products});
  if (!results.empty()) all.push_back({results.front(), products});
  return all;
}

// A module within another has no choice of its own.
void check_apart(const Paths& targets) {
  const std::string key = "policies.checkpoint.targets";
  for (const std::string& outer : targets) {
    for (const std::string& inner : targets) {
      if (!policies::lies_within(inner, outer)) continue;
      throw policies::PolicyError(
          key, fmt::format(" means {} and, within it, {}; policies.checkpoint.keep = \"auto\" chooses for "
                           "each module whether it is recomputed: name one of the two, or {}",
                           outer, inner, advise("policies.checkpoint.keep", "\"block\"")));
    }
  }
}

Paths targets_among(const Paths& paths, const LoadedConfig& job) try {
  const std::string key = "policies.checkpoint.targets";
  const Paths& patterns = job.config.policies.checkpoint.targets;
  Paths targets = patterns.empty()
                      ? policies::repeated_modules(paths, make_model(job.config, at::kMeta)->parameters())
                      : policies::matching_paths(patterns, paths, key);
  if (targets.empty())
    throw policies::PolicyError(
        key,
        " names no module, and none repeats, so that policies.checkpoint.keep = \"auto\" has "
        "none to choose among; name some, or " +
            advise("policies.checkpoint.keep", "\"block\""));
  check_apart(targets);
  return targets;
} catch (const policies::PolicyError& error) {
  throw located(error, job.locations);
}

}  // namespace

CheckpointPlacement place_checkpoints(LoadedConfig& loaded, c10::Device device,
                                      const planner::SimulationOptions& options) {
  const LoadedConfig job = without_budget(loaded, device);
  const PlacedJob placed = {
      .plan =
          [&](const Paths& recomputed, const ResultsByModule& keeps) {
            return plan_run(with_recomputed(job, recomputed, keeps), device, options).memory;
          },
      .targets = [&](const Paths& paths) { return targets_among(paths, job); },
      .keeps = sets_of(family_of(job.config).kept_results())};
  CheckpointPlacement placement = search_placement(placed, device, loaded.config.memory.budget.value().bytes);
  adopt_placement(loaded, placement);
  return placement;
}

}  // namespace dtk
