// A configuration that is checked, and how a rule that it breaks is said.
#pragma once
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"

namespace dtk {

class RuleCheck {
 public:
  /// `file_name`: the place of what the user did not write.
  RuleCheck(const LoadedConfig& loaded, const std::string& file_name)
      : loaded_(loaded), config_(loaded.config), locations_(loaded.locations), file_name_(file_name) {}

  const RunConfig& config() const { return config_; }
  bool written(const std::string& key) const { return locations_.count(key) > 0; }

  /// Throws ConfigError at the place of `key`.
  [[noreturn]] void fail(const std::string& key, const std::string& message) const;

  /// "remove it", and how to do that without touching a file that other runs share.
  std::string removal(const std::vector<std::string>& keys) const;

  /// Refuses keys of samples that were written for a run that draws none: `key` = 0 says so. The other keys
  /// of [sample] are those with which dit-sample draws from the run's checkpoints.
  void check_drawn(const std::string& key, int64_t samples) const;

 protected:
  const LoadedConfig& loaded_;
  const RunConfig& config_;
  const std::map<std::string, std::string>& locations_;
  const std::string& file_name_;
};

/// " is " of one, " are " of several.
inline const char* is_or_are(const std::vector<std::string>& keys) {
  return keys.size() == 1 ? " is " : " are ";
}

}  // namespace dtk
