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
std::string line_for(const LoadedConfig& loaded, const std::string& table, const std::string& name,
                     const T& value) {
  const std::string key = table + "." + name;
  if (!is_set(value)) {
    const std::string derived = family_named(loaded.config.train.model).derived_line(loaded.config, key);
    if (!derived.empty()) return derived;
    const auto origin = loaded.origins.find(key);
    const bool taken_back = origin != loaded.origins.end() && origin->second.source == Origin::Source::set;
    return "# " + name + " is not set" + (taken_back ? "  # --set" : "");
  }
  if (key == "sample.ema" && sample_ema_is_moot(loaded)) {
    return "# ema = true has no effect: policies.ema.enabled = false";
  }
  if (const std::string because = useless_because(loaded.config, key); !because.empty()) {
    return "# " + name + " has no effect: " + setting_of(loaded.config, because);
  }
  std::string line = name + " = " + toml_text(value);
  const auto origin = loaded.origins.find(key);
  if (origin != loaded.origins.end()) line += "  # " + escaped(text_of(origin->second));
  if (name != "enabled" && switched_off(loaded.config, table) && !is_default(key, toml_text(value))) {
    line += std::string(origin != loaded.origins.end() ? ";" : "  #") + " no effect: " + table +
            ".enabled = false";
  }
  return line;
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

std::string print_config(const LoadedConfig& loaded) {
  std::string text;
  std::string open_table;
  visit_keys(loaded.config,
             [&](const std::string& table, const std::string& name, const auto& value, const std::string&) {
               if (is_of_another_model(loaded.config, table + "." + name)) return;
               if (table == "schedule.epochs" && loaded.config.schedule.kind != ScheduleKind::epochs) return;
               if (table != open_table) {
                 text += (text.empty() ? "[" : "\n[") + table + "]\n";
                 open_table = table;
               }
               text += line_for(loaded, table, name, value) + "\n";
             });
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
