// Where the user wrote what a policy refuses.
#pragma once
#include <dtk/policies/report.h>
#include <dtk/toolkit/errors.h>

#include <map>
#include <string>

namespace dtk {

/// `error` as a ConfigError. Where its text starts with a key ("policies.checkpoint.targets: ...") that
/// `places` (LoadedConfig) knows, the place comes first; a table stands for its key `enabled`, which is what
/// asks for a policy.
ConfigError with_place(const policies::PolicyError& error, const std::map<std::string, std::string>& places);

}  // namespace dtk
