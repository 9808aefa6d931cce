#include "toolkit/config/toml_text.h"

#include <array>
#include <charconv>
#include <cmath>

namespace dtk {

std::string toml_text(bool value) {
  return value ? "true" : "false";
}

std::string toml_text(int64_t value) {
  return std::to_string(value);
}

std::string toml_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string text(digits.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string toml_text(const std::string& value) {
  return '"' + escaped(value) + '"';
}

std::string toml_text(policies::Enabled value) {
  switch (value) {
    case policies::Enabled::by_default:
      return "\"default\"";
    case policies::Enabled::on:
      return "true";
    case policies::Enabled::off:
      return "false";
  }
  return "";
}

template <class List>
static std::string list_text(const List& list) {
  std::string text;
  for (const auto& element : list) text += (text.empty() ? "" : ", ") + toml_text(element);
  return "[" + text + "]";
}

std::string toml_text(const std::vector<std::string>& value) {
  return list_text(value);
}

std::string toml_text(const std::vector<double>& value) {
  return list_text(value);
}

std::string toml_text(const std::array<double, 4>& value) {
  return list_text(value);
}

std::string toml_text(const std::array<int64_t, 4>& value) {
  return list_text(value);
}

std::string toml_text(const policies::SegmentKeeps& value) {
  return value.results.empty() ? toml_text(value.word) : toml_text(value.results);
}

std::string toml_text(const policies::ByteCount& value) {
  return toml_text(value.bytes);
}

std::string toml_text(const ByteSize& value) {
  if (value.percent == 0) return toml_text(value.bytes);
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value.percent).ptr;
  return '"' + std::string(digits.data(), end) + "%\"";
}

}  // namespace dtk
