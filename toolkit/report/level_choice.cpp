#include "toolkit/report/level_choice.h"

#include "toolkit/config/rules.h"
#include "toolkit/core/format.h"

namespace dtk {

using policies::ShardLevel;

std::string choose_level(LoadedConfig& loaded,
                         const std::function<std::optional<int64_t>(const LoadedConfig&)>& bytes_of) {
  if (!level_is_open(loaded.config)) return "";
  policies::ShardOptions& shard = loaded.config.policies.shard;
  const policies::ShardOptions written = shard;
  ShardLevel& level = shard.level;
  level = ShardLevel::optimizer;
  shard.prefetch = policies::ShardOptions().prefetch;  // without effect there
  if (loaded.ranks == 1) return "";
  const int64_t budget = loaded.config.memory.budget.value().bytes;
  const std::optional<int64_t> bytes = bytes_of(loaded);
  if (!bytes || *bytes > budget) {
    level = ShardLevel::parameters;
    shard.prefetch = written.prefetch;
  }
  const std::string reason = fmt::format("memory.budget = {}", budget);
  loaded.origins["policies.shard.level"] = {Origin::Source::chosen, "by level = auto under " + reason};
  if (!bytes) return "level = \"auto\": \"parameters\", as \"optimizer\" cannot be planned";
  return fmt::format("level = \"auto\": \"{}\", as \"optimizer\" takes {} bytes by its plan, {} {}",
                     policies::text_of(level), *bytes, *bytes > budget ? "more than" : "within", reason);
}

}  // namespace dtk
