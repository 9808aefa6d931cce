// policies.checkpoint.keep = "auto": which modules are recomputed in backward, and which of their
// results they keep, so that a job stays within memory.budget and recomputes as little as possible.
//
// Host memory is no choice: what its copies cost is time on a link, which no count of FLOPs tells.
//
// Chosen before the run, by plans of the job itself: what each module keeps and costs is counted in them,
// and the peak of the choice is that of its own plan. Optimal by the model of planner/placement.h.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/report/memory_need.h"

namespace dtk {

/// Names of results, by module.
using ResultsByModule = std::map<std::string, std::vector<std::string>>;

struct CheckpointPlacement {
  std::vector<std::string> recomputed = {};  // modules, in the order in which they run; none: all is kept
  ResultsByModule keeps = {};                // what those of them keep that keep more than their inputs
  int64_t targets = 0;                       // modules that policies.checkpoint.targets means
  int64_t flops = 0;                         // that a steady step recomputes (planner::Flops::recomputed)
  std::optional<int64_t> max_flops = {};     // with every target recomputed; nothing: that was not planned
  int64_t planned_bytes = 0;                 // of memory.budget, by the plan of this choice
  int64_t budget_bytes = 0;
  int64_t plans = 0;  // made to find it

  bool fits() const { return fits_in(planned_bytes, budget_bytes); }
  friend bool operator==(const CheckpointPlacement&, const CheckpointPlacement&) = default;
};

/// Makes `checkpoint` recompute the modules `recomputed`, all but what `keeps` has: keep = "block", or
/// a list of names, of some modules where they differ.
void recompute(policies::CheckpointOptions& checkpoint, const std::vector<std::string>& recomputed,
               const ResultsByModule& keeps);

/// Replaces keep = "auto" by the choice, as recompute(), or by keep = "all".
void adopt_placement(LoadedConfig& loaded, const CheckpointPlacement& placement);

/// "3 of 6 modules are recomputed in backward, the first blocks.0, the last blocks.2, of which 2 keep
/// fc2_out; ..."
std::string placement_text(const CheckpointPlacement& placement);

/// {"recomputed": [path], "keeps": {path: [name]}, "targets", "flops", "most_flops": number or null,
/// "planned_bytes", "budget_bytes", "plans"}
nlohmann::ordered_json placement_json(const CheckpointPlacement& placement);
/// What placement_json() wrote.
CheckpointPlacement read_placement(const nlohmann::json& json);

}  // namespace dtk
