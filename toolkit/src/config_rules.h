// Rules that span several fields of a configuration.
#pragma once
#include <dtk/toolkit/config_io.h>

#include <map>
#include <string>

namespace dtk {

/// Throws ConfigError for the first broken rule, at the place of the offending key in `places` (by full key)
/// or at `file_name` if the user did not write that key.
void check_rules(const LoadedConfig& loaded, const std::map<std::string, std::string>& places,
                 const std::string& file_name);

/// sample.ema where nobody asked for it and there is no EMA. It must not be saved as a key: read back, it
/// would count as asked for.
bool sample_ema_is_moot(const LoadedConfig& loaded);

}  // namespace dtk
