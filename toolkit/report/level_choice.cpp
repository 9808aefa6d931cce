#include "toolkit/report/level_choice.h"

#include "toolkit/config/rules.h"
#include "toolkit/core/format.h"
#include "toolkit/report/memory_need.h"

namespace dtk {

using policies::ShardLevel;

void take_level(RunConfig& config, ShardLevel level) {
  if (!level_is_open(config)) return;
  policies::ShardOptions& shard = config.policies.shard;
  shard.level = level;
  if (level == ShardLevel::parameters) return;
  shard.prefetch = policies::ShardOptions().prefetch;
  shard.gather = policies::ShardOptions().gather;
}

std::string choose_level(LoadedConfig& loaded,
                         const std::function<PlannedBytes(const LoadedConfig&)>& planned) {
  if (!level_is_open(loaded.config) || loaded.ranks == 1) return "";
  LoadedConfig smaller = loaded;
  take_level(smaller.config, ShardLevel::parameters);
  take_level(loaded.config, ShardLevel::optimizer);
  const int64_t budget = loaded.config.memory.budget.value().bytes;
  const auto [bytes, problem] = planned(loaded);
  const bool fits = bytes && fits_in(*bytes, budget);
  std::optional<int64_t> other;
  if (bytes && !fits) other = planned(smaller).bytes;
  const bool is_smaller = !other || *other < *bytes;
  if (!fits && is_smaller) loaded.config = smaller.config;
  loaded.origins["policies.shard.level"] = {Origin::Source::chosen,
                                            fmt::format("by level = auto under memory.budget = {}", budget)};
  if (!bytes) return "level = \"auto\": \"parameters\", as \"optimizer\" cannot be planned: " + problem;
  return fmt::format(
             "level = \"auto\": \"{}\", as \"optimizer\" takes {} bytes by its plan, {} memory.budget = {}",
             policies::text_of(loaded.config.policies.shard.level), *bytes, fits ? "within" : "more than",
             budget) +
         (other ? fmt::format(", and \"parameters\" {}", *other) : "");
}

}  // namespace dtk
