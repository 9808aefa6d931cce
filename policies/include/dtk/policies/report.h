// What a policy says after it was applied.
#pragma once
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace dtk::policies {

struct PolicyReport {
  std::string policy;        // name as in [policies.<name>]
  bool active = false;       // has an effect in this run
  std::string reason;        // one line: what it does, or why it does nothing
  int64_t device_bytes = 0;  // bytes it holds on the training device
  int64_t host_bytes = 0;    // bytes it holds in host memory instead, where that is not the training device
  // Bytes it keeps off the training device for the whole run, where that is a plain count.
  std::optional<int64_t> saved_bytes = std::nullopt;
};

/// That of a policy by its name; null: none.
template <class Reports>
auto report_of(Reports& reports, std::string_view policy) -> decltype(&reports[0]) {
  for (auto& report : reports) {
    if (report.policy == policy) return &report;
  }
  return nullptr;
}

/// A policy that cannot do what was asked for; the message says what to change.
struct PolicyError : std::runtime_error {
  explicit PolicyError(const std::string& message) : std::runtime_error(message) {}
  /// Of one key of a configuration, with which the message begins.
  PolicyError(const std::string& about, const std::string& rest)
      : std::runtime_error(about + rest), key(about) {}

  std::string key;  // "policies.ema.decay", or a policy's table: "policies.ema"; "": of none
};

}  // namespace dtk::policies
