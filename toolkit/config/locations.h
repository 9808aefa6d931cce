// Where the user wrote what is refused.
#pragma once
#include <dtk/policies/report.h>

#include <map>
#include <string>

#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"

namespace dtk {

/// `error` as a ConfigError. Where `locations` (LoadedConfig) knows its key, the place comes first; a table
/// stands for its key `enabled`, which is what asks for a policy.
ConfigError located(const policies::PolicyError& error, const std::map<std::string, std::string>& locations);

}  // namespace dtk
