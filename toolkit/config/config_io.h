// Reading, printing and comparing run configurations.
#pragma once
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "toolkit/config/config.h"

namespace dtk {

class FileSystem;

/// Where a value came from.
struct Origin {
  enum class Source { by_default, file, set, checkpoint, measured, planned, chosen, escalated };
  Source source = Source::by_default;
  /// A line of a file ("configs/base.toml:12"), the reason of a default or a choice, or the figures behind
  /// it.
  std::string text = {};
  friend bool operator==(const Origin&, const Origin&) = default;
};
constexpr auto enum_texts(Origin::Source) {
  return std::array{"default",  "file",    "--set",  "the checkpoint's",
                    "measured", "planned", "chosen", "out of memory"};
}
/// "default", "configs/base.toml:12", "measured: bf16 2 ms, fp32 3 ms a step"
std::string text_of(const Origin& origin);

/// What was changed where a run was resumed.
struct ConfigChange {
  int64_t step = 0;             // the last one before it
  std::string text;             // "optimizer.lr = 0.0001 (was 0.0003)"
  bool changes_result = false;  // the weights are others than they would have been
  friend bool operator==(const ConfigChange&, const ConfigChange&) = default;
};

/// A configuration and where each value came from.
struct LoadedConfig {
  RunConfig config;
  /// By full key ("data.batch"). Empty for a configuration that was made in code.
  std::map<std::string, Origin> origins;
  /// What messages about a key start with, by full key, for the keys that the user wrote:
  /// "configs/base.toml:12:9" or "--set data.batch=16".
  std::map<std::string, std::string> locations = {};
  std::vector<ConfigChange> history = {};  // of the run so far
  /// What whoever wrote it should hear: that one --set takes the place of an earlier one.
  std::vector<std::string> notes = {};
  /// Of a plan: nothing is trained, and so many are inferred (ModelFamily::inferred()).
  std::optional<int64_t> inferred = {};
  /// That train it together, or are planned to.
  int64_t ranks = 1;
};

inline bool written_by_set(const LoadedConfig& loaded, const std::string& key) {
  const auto origin = loaded.origins.find(key);
  return origin != loaded.origins.end() && origin->second.source == Origin::Source::set;
}

/// The text of a configuration; throws ConfigError.
std::string read_config(FileSystem& files, const std::filesystem::path& file);

/// Reads `file` and applies `overrides`, each "data.batch=16": the value is TOML, and a bare word is accepted
/// where a string is wanted; the bare word default takes back what the file says of any key. Everything that
/// is wrong in either is a ConfigError that starts with "file:line:column: " or "--set key=value: ": syntax,
/// an unknown table or key, a wrong type, a value out of range, and rules across fields (a run without an
/// end, a model that cannot be built).
LoadedConfig load_config(FileSystem& files, const std::filesystem::path& file,
                         const std::vector<std::string>& overrides);

/// The keys that `overrides` set or take back. Throws as load_config().
std::set<std::string> keys_of(const std::vector<std::string>& overrides);

/// As load_config; `file_name` only appears in messages and origins. `origins`: of a configuration that
/// print_config() wrote, whose keys count as written only where they were.
LoadedConfig parse_config(const std::string& text, const std::string& file_name,
                          const std::vector<std::string>& overrides,
                          const std::map<std::string, Origin>& origins = {});

/// Of a configuration that print_config() wrote, called `name` where no key is to blame. `locations`: as
/// LoadedConfig has them, where its user wrote the keys that the user wrote.
LoadedConfig reparse_config(const std::string& text, const std::string& name,
                            const std::map<std::string, std::string>& locations);

/// One key of the effective configuration.
struct ConfigRow {
  std::string table, name;
  std::string value;  ///< as TOML; "" where the key is not set or has no effect
  std::string note;   ///< where the value comes from, or why there is none; "": made in code
};
/// In printing order, without the keys of other model families.
std::vector<ConfigRow> config_rows(const LoadedConfig& loaded);

/// The effective configuration as TOML, each key with its origin as a comment. Options that are not set are
/// comment lines. Reading the text back gives an equal RunConfig.
std::string print_config(const LoadedConfig& loaded);

struct ConfigDifference {
  std::string key;
  std::string a, b;  ///< as TOML, or "not set"
};
/// The keys whose values differ, in the order they are printed.
std::vector<ConfigDifference> differences(const RunConfig& a, const RunConfig& b);

/// What another value of a key does to a run that is resumed: nothing that its weights depend on; something;
/// or it is refused.
enum class OnResume { harmless, changes_result, fixed };
/// A change of train.threads is judged by the trainer, too, which knows how many threads each run had in
/// effect.
OnResume on_resume(const std::string& key);

/// Why a run configured as `now` cannot continue from `checkpoint` (its name, for the message), written by a
/// run configured as `written` and saved in `config_file`; "" if it can.
std::string resume_problem(const std::string& checkpoint, const std::string& config_file,
                           const RunConfig& written, const RunConfig& now);

/// What a run configured as `now` changes at `step` that was configured as `written`.
std::vector<ConfigChange> changes_on_resume(int64_t step, const RunConfig& written, const RunConfig& now);

}  // namespace dtk
