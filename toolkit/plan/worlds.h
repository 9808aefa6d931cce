// Plans of one job on several numbers of ranks.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "toolkit/plan/plan.h"

namespace dtk {

/// The job of one rank on so many: its micro-batch stays what it is, data.batch / train.accumulate samples;
/// where the ranks do not divide the number of micro-batches it becomes their next multiple, and data.batch
/// what follows. Throws as share_out().
LoadedConfig on_ranks(LoadedConfig loaded, int64_t ranks);

/// What its ranks divide: "nothing", or policies.shard.level.
std::string divided(const LoadedConfig& loaded);

struct PlannedWorlds {
  std::vector<Plan> plans;
  std::string left_out;  // why plans with policies.shard.level = "parameters" are not among them
};
/// For each of `worlds`, in their order, as on_ranks(): one, and one with policies.shard.level = "parameters"
/// where anything is divided. `loaded`: of one rank. Throws as make_plan() and
/// share_out().
PlannedWorlds plan_worlds(const LoadedConfig& loaded, c10::Device device, const std::vector<int64_t>& worlds,
                          const planner::SimulationOptions& options = {});

/// A row each, in the unit of the largest peak.
std::string worlds_text(const std::string& name, const LoadedConfig& loaded, const PlannedWorlds& worlds);
/// An array of plans, as plan_json() writes each.
nlohmann::ordered_json worlds_json(const std::vector<Plan>& plans);

}  // namespace dtk
