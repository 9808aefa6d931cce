// policies.shard.level = "auto": the first level whose plan fits memory.budget.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "toolkit/config/config_io.h"

namespace dtk {

/// Replaces an open level (level_is_open()) by "optimizer" if that fits memory.budget, else by "parameters",
/// whether that fits or not; of one rank, which has nothing to divide, by "optimizer". With "optimizer" goes
/// policies.shard.prefetch, which has no effect there. `bytes_of`: that the
/// plan of a job says of memory.budget; nothing where there is no plan of it. Returns a line that says what
/// was chosen, and why; "" if nothing had to be.
std::string choose_level(LoadedConfig& loaded,
                         const std::function<std::optional<int64_t>(const LoadedConfig&)>& bytes_of);

}  // namespace dtk
