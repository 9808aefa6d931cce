#include <algorithm>
#include <map>

#include "toolkit/config/config_io.h"
#include "toolkit/config/families.h"
#include "toolkit/config/keys.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"

namespace dtk {
namespace {

/// Whether `value`, as TOML, is what `key` has where nobody sets it.
bool is_default(const std::string& key, const std::string& value) {
  static const std::map<std::string, std::string> defaults = [] {
    std::map<std::string, std::string> all;
    const RunConfig unset{};
    visit_keys(unset, [&](const std::string& table, const std::string& name, const auto& member,
                          const auto&...) { all[table + "." + name] = toml_text(member); });
    return all;
  }();
  return defaults.at(key) == value;
}

template <class T>
ConfigRow row_of(const LoadedConfig& loaded, const std::string& table, const std::string& name,
                 const T& value) {
  const std::string key = table + "." + name;
  const auto found = loaded.origins.find(key);
  const Origin* const origin = found == loaded.origins.end() ? nullptr : &found->second;
  if (!is_set(value)) {
    const std::string derived = family_named(loaded.config.train.model).derived_value(loaded.config, key);
    if (!derived.empty()) return {table, name, "", derived};
    return {table, name, "", name + " is not set" + (written_by_set(loaded, key) ? "  # --set" : "")};
  }
  if (key == "sample.ema" && sample_ema_is_moot(loaded)) {
    return {table, name, "", "ema = true has no effect: policies.ema.enabled = false"};
  }
  if (const std::string because = useless_because(loaded.config, key); !because.empty()) {
    return {table, name, "", name + " has no effect: " + setting_of(loaded.config, because)};
  }
  ConfigRow row{table, name, toml_text(value), origin != nullptr ? escaped(text_of(*origin)) : ""};
  if (name != "enabled" && switched_off(loaded.config, table) && !is_default(key, row.value)) {
    row.note += (row.note.empty() ? "no effect: " : "; no effect: ") + table + ".enabled = false";
  }
  return row;
}

// What is free on a resume and changes no bit of what is trained.
bool is_harmless(const std::string& table, const std::string& key) {
  if (is_one_of(key, {"memory.split", "distributed.reduce"})) return false;  // another order of sums
  // Checkpointing changes no bit; validation, samples and logs no weight.
  if (is_one_of(table, {"memory", "sample", "log", "distributed", "policies.checkpoint"})) return true;
  return is_one_of(
      key, {"train.out", "train.log_every", "train.checkpoint_every", "train.sample_every",
            "train.keep_checkpoints", "train.validate_every", "train.validate_ema", "train.on_not_finite",
            "train.most_skipped", "train.slow_step", "train.allow_thread_change", "data.samples",
            "data.on_corrupt", "data.fingerprint", "data.allow_change", "data.prefetch", "data.threads",
            // Where weights and the average live, not what they are.
            "policies.shard.enabled", "policies.shard.level", "policies.shard.prefetch",
            "policies.ema.device", "policies.ema.pinned"});
}

// Why a key of all runs has its value for ever; "" if it may change.
std::string why_fixed(const std::string& key) {
  if (key == "train.model" || key == "train.parts") return "it says what is trained";
  if (key == "train.seed") return "the order of the data and what is held out follow from it";
  if (key == "data.order") return "which samples of an epoch were trained on follows from it";
  if (key == "data.kind") return "it says what samples are";
  if (key == "data.validation")
    return "what was held out has not been trained on, and all else may have been";
  if (key == "train.init_from" || key == "train.init_key") return "a run begins with weights once";
  return "";
}

}  // namespace

std::string text_of(const Origin& origin) {
  if (origin.source == Origin::Source::file) return origin.text;
  const std::string source = policies::text_of(origin.source);
  if (origin.text.empty()) return source;
  return source + (origin.source == Origin::Source::chosen ? " " : ": ") + origin.text;
}

std::vector<ConfigRow> config_rows(const LoadedConfig& loaded) {
  std::vector<ConfigRow> rows;
  visit_keys(loaded.config,
             [&](const std::string& table, const std::string& name, const auto& value, const auto&...) {
               if (is_of_another_model(loaded.config, table + "." + name)) return;
               if (table == "schedule.epochs" && loaded.config.schedule.kind != ScheduleKind::epochs) return;
               rows.push_back(row_of(loaded, table, name, value));
             });
  return rows;
}

std::string print_config(const LoadedConfig& loaded) {
  std::string text;
  std::string open_table;
  for (const ConfigRow& row : config_rows(loaded)) {
    if (row.table != open_table) text += (text.empty() ? "[" : "\n[") + row.table + "]\n";
    open_table = row.table;
    if (!row.value.empty())
      text += fmt::format("{} = {}{}", row.name, row.value, row.note.empty() ? "" : "  ");
    text += (row.note.empty() ? "" : "# " + row.note) + "\n";
  }
  return text;
}

std::vector<ConfigDifference> differences(const RunConfig& a, const RunConfig& b) {
  std::vector<ConfigDifference> all;
  visit_keys(a, [&](const std::string& table, const std::string& name, const auto& value, const auto&...) {
    all.push_back({table + "." + name, toml_text(value), ""});
  });
  size_t next = 0;
  visit_keys(b, [&](const std::string&, const std::string&, const auto& value, const auto&...) {
    all[next++].b = toml_text(value);
  });
  all.erase(std::remove_if(all.begin(), all.end(), [](const ConfigDifference& d) { return d.a == d.b; }),
            all.end());
  return all;
}

OnResume on_resume(const std::string& key) {
  const std::string table = find_key(key)->table;
  const ConfiguredFamily* const owner = owner_of(key);
  const bool is_data = is_common_table(table) && owner != nullptr;
  if (!why_fixed(key).empty() || (owner != nullptr && !owner->may_change_on_resume(key)))
    return OnResume::fixed;
  // Files may move: what they hold is compared by itself.
  return is_harmless(table, key) || (is_data && find_key(key)->is_any_text) ? OnResume::harmless
                                                                            : OnResume::changes_result;
}

std::string resume_problem(const std::string& checkpoint, const std::string& config_file,
                           const RunConfig& written, const RunConfig& now) {
  std::string lines;
  bool model = false;
  for (const auto& [key, before, after] : differences(written, now)) {
    const bool begins_average =
        key == "policies.ema.enabled" && written.policies.ema.enabled == policies::Enabled::off;
    if (on_resume(key) != OnResume::fixed && !begins_average) continue;
    std::string why = begins_average ? "there is no average of what was trained so far" : why_fixed(key);
    if (why.empty()) {
      model = true;
      why = "the weights were trained with it";
    }
    lines += fmt::format("  {}: {} in the checkpoint, {} now; {}\n", key, before, after, why);
  }
  if (lines.empty()) return "";
  return fmt::format(
      "checkpoint {} cannot go on so:\n{}use its own values ({}), or start a new run in another train.out{}",
      checkpoint, lines, config_file,
      model ? "" : ", which may begin with these weights: --set train.init_from=" + checkpoint);
}

std::vector<ConfigChange> changes_on_resume(int64_t step, const RunConfig& written, const RunConfig& now) {
  std::vector<ConfigChange> changes;
  for (const auto& [key, before, after] : differences(written, now)) {
    if (is_one_of(key, {"train.allow_thread_change", "data.allow_change"})) continue;
    changes.push_back({step, fmt::format("{} = {} (was {})", key, after, before),
                       on_resume(key) == OnResume::changes_result});
  }
  return changes;
}

}  // namespace dtk
