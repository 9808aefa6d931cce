#include <algorithm>
#include <map>

#include "toolkit/config/config_io.h"
#include "toolkit/config/families.h"
#include "toolkit/config/keys.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"

namespace dtk {
namespace {

/// Whether `value`, as TOML, is what `key` has where nobody sets it.
bool is_default(const std::string& key, const std::string& value) {
  static const std::map<std::string, std::string> defaults = [] {
    std::map<std::string, std::string> all;
    const RunConfig unset{};
    visit_keys(unset, [&](const std::string& table, const std::string& name, const auto& member,
                          const std::string&) { all[table + "." + name] = toml_text(member); });
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

std::vector<std::string> collect_changeable_keys() {
  const std::vector<std::string> keys = {
      "train.out",
      "train.threads",
      "train.steps",
      "train.epochs",
      "train.seconds",
      "train.log_every",
      "train.checkpoint_every",
      "train.sample_every",
      "train.keep_checkpoints",
      // Validation changes no weight; data.validation, which takes samples away, may not change.
      "train.validate_every",
      "train.validate_ema",
      "train.on_not_finite",
      "train.most_skipped",
      "train.slow_step",
      "train.allow_thread_change",
      "data.prefetch",
      "data.threads",
      // Where the average lives, not what it is: to the bit on the CPU, and no weight ever depends on it.
      "policies.ema.device",
      "policies.ema.pinned",
  };
  std::vector<std::string> found;
  for (const KeyInfo& info : all_keys()) {
    const bool named = std::find(keys.begin(), keys.end(), info.key) != keys.end();
    // Checkpointing changes no bit of the result.
    const bool free = info.table == "memory" || info.table == "sample" || info.table == "log" ||
                      info.table == "policies.checkpoint";
    if (named || free) found.push_back(info.key);
  }
  return found;
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
             [&](const std::string& table, const std::string& name, const auto& value, const std::string&) {
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
    if (!row.value.empty()) text += row.name + " = " + row.value + (row.note.empty() ? "" : "  ");
    text += (row.note.empty() ? "" : "# " + row.note) + "\n";
  }
  return text;
}

std::vector<ConfigDifference> differences(const RunConfig& a, const RunConfig& b) {
  std::vector<ConfigDifference> all;
  visit_keys(a,
             [&](const std::string& table, const std::string& name, const auto& value, const std::string&) {
               all.push_back({table + "." + name, toml_text(value), ""});
             });
  size_t next = 0;
  visit_keys(b, [&](const std::string&, const std::string&, const auto& value, const std::string&) {
    all[next++].b = toml_text(value);
  });
  all.erase(std::remove_if(all.begin(), all.end(), [](const ConfigDifference& d) { return d.a == d.b; }),
            all.end());
  return all;
}

const std::vector<std::string>& keys_that_may_change_on_resume() {
  static const std::vector<std::string> keys = collect_changeable_keys();
  return keys;
}

std::string resume_problem(const std::string& checkpoint, const std::string& config_file,
                           const RunConfig& written, const RunConfig& now) {
  const std::vector<std::string>& changeable = keys_that_may_change_on_resume();
  std::string lines;
  for (const ConfigDifference& difference : differences(written, now)) {
    if (std::find(changeable.begin(), changeable.end(), difference.key) != changeable.end()) continue;
    lines += "  " + difference.key + ": " + difference.a + " in the checkpoint, " + difference.b + " now\n";
  }
  if (lines.empty()) return "";
  return "checkpoint " + checkpoint + " was written with another configuration:\n" + lines +
         "use the checkpoint's configuration (" + config_file + ") or start a new run in another train.out";
}

}  // namespace dtk
