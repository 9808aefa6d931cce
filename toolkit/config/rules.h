// Rules that span several fields of a configuration.
#pragma once
#include <string>

#include "toolkit/config/config_io.h"

namespace dtk {

/// Throws ConfigError for the first broken rule, at the place of the offending key or at `file_name` if the
/// user did not write that key.
void check_rules(const LoadedConfig& loaded, const std::string& file_name);

/// Whether the configuration says when its run ends.
bool has_end(const TrainOptions& train);
/// Throws ConfigError where it does not.
void check_end(const LoadedConfig& loaded);

/// Throws ConfigError for what was written and only a run that is resumed has a use for, and where no end is
/// said.
void check_new_run(const LoadedConfig& loaded);

/// Where the user wrote `key`, for the beginning of a message: "base.toml:3:9: "; "" if nobody did.
std::string location_of(const LoadedConfig& loaded, const std::string& key);

/// Whether `key` is of a model that train.model does not name: such keys are not printed.
bool is_of_another_model(const RunConfig& config, const std::string& key);

/// The key whose value leaves `key` without use in this configuration, "schedule.kind"; "" if none does.
/// check_rules() refuses such a key where it was written. It must not be saved as a key either: read back, it
/// would count as written.
std::string useless_because(const RunConfig& config, const std::string& key);

/// `schedule.kind = "constant"`, of a key by its full name.
std::string setting_of(const RunConfig& config, const std::string& key);

/// sample.ema where there is no EMA, which check_rules() refuses if somebody asked for it. It must not be
/// saved as a key: read back, it would count as asked for.
bool sample_ema_is_moot(const LoadedConfig& loaded);

/// Whether `table` is that of a policy with enabled = false. One key switches a policy off: what a file says
/// of it besides has no effect, and the printed configuration says so.
bool switched_off(const RunConfig& config, const std::string& table);

/// Whether a plan has to choose what is recomputed: keep = "auto" of a policy that is not switched off.
bool placement_is_open(const RunConfig& config);
/// Likewise what is divided: level = "auto" of a policy that is not switched off.
bool level_is_open(const RunConfig& config);

}  // namespace dtk
