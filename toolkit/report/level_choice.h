// policies.shard.level = "auto": the first level whose plan fits memory.budget.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "toolkit/config/config_io.h"

namespace dtk {

/// In place of an open level (level_is_open()), else nothing. With "optimizer" policies.shard.prefetch and
/// gather go, which have no effect there.
void take_level(RunConfig& config, policies::ShardLevel level);

/// What a plan takes of memory.budget, or why there is no plan.
struct PlannedBytes {
  std::optional<int64_t> bytes;
  std::string problem = {};
};

/// Replaces an open level by "optimizer" if that fits memory.budget, else by "parameters", whether that fits
/// or not. One rank has nothing to divide: there it stays open, for a resume on several. Returns a line that
/// says what was chosen, and why; "" if nothing had to be.
std::string choose_level(LoadedConfig& loaded,
                         const std::function<PlannedBytes(const LoadedConfig&)>& planned);

}  // namespace dtk
