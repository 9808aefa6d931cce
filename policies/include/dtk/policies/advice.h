// Advice that a message gives by a key of the configuration and its value.
#pragma once
#include <string>
#include <string_view>

namespace dtk::policies {

/// "set data.convert = \"rgb\"". `value` as TOML has it. All advice that names a value is made here:
/// tests/integration/runs/advice_runs.py finds each use in the sources, provokes its message and does as it says.
inline std::string advise(std::string_view key, std::string_view value) {
  return "set " + std::string(key) + " = " + std::string(value);
}

}  // namespace dtk::policies
