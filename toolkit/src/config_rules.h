// Rules that span several fields of a configuration.
#pragma once
#include <dtk/toolkit/config_io.h>

#include <string>

namespace dtk {

/// Throws ConfigError for the first broken rule, at the place of the offending key or at `file_name` if the
/// user did not write that key.
void check_rules(const LoadedConfig& loaded, const std::string& file_name);

/// sample.ema where there is no EMA, which check_rules() refuses if somebody asked for it. It must not be
/// saved as a key: read back, it would count as asked for.
bool sample_ema_is_moot(const LoadedConfig& loaded);

}  // namespace dtk
