// Configurations given as text, and what is wrong with them.
#pragma once
#include <string>
#include <vector>

#include "support/error_text.h"
#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"

namespace dtk::test {

inline const std::string runnable = "train.steps = 100\nmodel.name = \"DiT-S/4\"\n";

inline LoadedConfig read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "base.toml", overrides);
}

inline std::string error_in(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return error_text<ConfigError>([&] { read(text, overrides); });
}

/// Of a text that print_config() wrote.
inline RunConfig read_back(const std::string& text) {
  return parse_config(text, "config.toml", {}).config;
}

/// Whether a whole line of `text` is `line`.
inline bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text + "\n").find("\n" + line + "\n") != std::string::npos;
}

}  // namespace dtk::test
