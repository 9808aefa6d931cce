// The search behind policies.checkpoint.keep = "auto", of any job that can be planned.
#pragma once
#include <c10/core/Device.h>
#include <dtk/planner/simulate.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "toolkit/report/placement.h"

namespace dtk {

/// A job in which modules can be recomputed in backward. Its modules run through
/// policies::run_observed(), which a PolicySet puts into its seam, and it ends two optimizer steps or more.
struct PlacedJob {
  /// Its plan with `recomputed` recomputed, all but what `keeps` has; nothing is where that is empty.
  /// ConfigError: none of a module's results has one of those names.
  std::function<planner::SimulationResult(const std::vector<std::string>& recomputed,
                                          const ResultsByModule& keeps)>
      plan;
  /// Those of the modules that it runs, which may be recomputed; none within another.
  std::function<std::vector<std::string>(const std::vector<std::string>& paths)> targets;
  /// What a module that is recomputed may keep beside its inputs, each a choice of its own: names of
  /// results. Each is planned once for all targets, where it is worth asking.
  std::vector<std::vector<std::string>> keeps = {};
};

/// Of the choices that were planned, the one that recomputes least and stays within `budget_bytes` of
/// `device`; the lowest if none does. Throws as the job's functions and planner::place_segments().
CheckpointPlacement search_placement(const PlacedJob& job, c10::Device device, int64_t budget_bytes);

}  // namespace dtk
