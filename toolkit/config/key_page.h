// All keys of a configuration with their defaults, for people (dit-train --keys).
#pragma once
#include <string>

namespace dtk {

/// A line of at most 80 columns, or a few, for each key that begins with `prefix`, below its table: what it
/// is by default where nothing else is set, train.model included, and what it may be. Throws ConfigError if
/// none begins so.
std::string key_page(const std::string& prefix);

}  // namespace dtk
