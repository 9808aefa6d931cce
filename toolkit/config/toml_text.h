// Values of a configuration as TOML text, for files and for messages.
#pragma once
#include <dtk/policies/enum_text.h>
#include <dtk/policies/internal/enabled.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/core/text.h"

namespace dtk {

std::string toml_text(bool value);
std::string toml_text(int64_t value);
/// Shortest text that reads back as the same double, always recognisable as a float: "1.0", "1e-08", "nan".
std::string toml_text(double value);
/// Quoted, with control characters escaped.
std::string toml_text(const std::string& value);
std::string toml_text(policies::Enabled value);  ///< "default" with its quotes, true or false
std::string toml_text(const std::vector<std::string>& value);
std::string toml_text(const std::vector<double>& value);
std::string toml_text(const std::array<double, 4>& value);
std::string toml_text(const std::array<int64_t, 4>& value);
std::string toml_text(const policies::SegmentKeeps& value);  ///< a string, or a list
std::string toml_text(const policies::ByteCount& value);     ///< an integer
std::string toml_text(const ByteSize& value);                ///< an integer, or "80%" with its quotes
std::string toml_text(const char*) = delete;                 // would become a bool

template <policies::TextEnum E>
std::string toml_text(E value) {
  return toml_text(policies::text_of(value));
}

/// "not set" for an empty optional, which TOML cannot say.
template <class T>
std::string toml_text(const std::optional<T>& value) {
  return value ? toml_text(*value) : "not set";
}

/// "key = value", as the file would have it.
template <class T>
std::string setting(const std::string& key, const T& value) {
  return key + " = " + toml_text(value);
}

/// False for an optional value that is not there.
template <class T>
bool is_set(const T&) {
  return true;
}
template <class T>
bool is_set(const std::optional<T>& value) {
  return value.has_value();
}

}  // namespace dtk
