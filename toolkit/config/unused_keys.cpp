#include "toolkit/config/families.h"
#include "toolkit/config/keys.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/suggestions.h"

namespace dtk {

std::string location_of(const LoadedConfig& loaded, const std::string& key) {
  const auto place = loaded.locations.find(key);
  return place == loaded.locations.end() ? "" : place->second + ": ";
}

bool is_of_another_model(const RunConfig& config, const std::string& key) {
  const ConfiguredFamily& own = family_named(config.train.model);
  const ConfiguredFamily* const owner = owner_of(key);
  return own.ignores(key) || (key == "train.parts" && own.parts().empty()) ||
         (owner != nullptr && owner != &own);
}

std::string useless_because(const RunConfig& config, const std::string& key) {
  if (is_of_another_model(config, key)) return "train.model";
  if (switched_off(config, parent_of(key))) return "";  // a single switch is to be enough
  const std::string because = family_named(config.train.model).useless_because(config, key);
  if (!because.empty()) return because;
  const policies::SegmentKeeps& keep = config.policies.checkpoint.keep;
  if (key == "policies.checkpoint.offload_min_bytes" && !keep.offloads()) {
    return "policies.checkpoint.keep";
  }
  if ((key == "policies.shard.prefetch" || key == "policies.shard.gather") &&
      config.policies.shard.level == policies::ShardLevel::optimizer)
    return "policies.shard.level";
  // Each target is a choice of its own.
  if ((key == "policies.checkpoint.every" || key == "policies.checkpoint.segment") &&
      keep.word == policies::KeepWord::automatic) {
    return "policies.checkpoint.keep";
  }
  if (key == "train.most_skipped" && config.train.on_not_finite != NotFinite::skip)
    return "train.on_not_finite";
  const ScheduleKind schedule = config.schedule.kind;
  const bool by_epochs = schedule == ScheduleKind::epochs;
  if ((key == "schedule.final" && schedule != ScheduleKind::cosine) ||
      (key == "schedule.warmup" && by_epochs) || (key.starts_with("schedule.epochs.") && !by_epochs)) {
    return "schedule.kind";
  }
  return "";
}

std::string setting_of(const RunConfig& config, const std::string& key) {
  std::string text;
  visit_keys(config,
             [&](const std::string& table, const std::string& name, const auto& member, const auto&...) {
               if (key == table + "." + name) text = setting(key, member);
             });
  return text;
}

bool sample_ema_is_moot(const LoadedConfig& loaded) {
  return loaded.config.sample.ema && loaded.config.policies.ema.enabled == policies::Enabled::off;
}

bool switched_off(const RunConfig& config, const std::string& table) {
  constexpr std::string_view all = "policies.";
  if (!table.starts_with(all)) return false;
  bool off = false;
  policies::PolicyOptions::tables(config.policies, [&](std::string_view name, const auto& policy) {
    if (name == std::string_view(table).substr(all.size())) off = policy.enabled == policies::Enabled::off;
  });
  return off;
}

}  // namespace dtk
