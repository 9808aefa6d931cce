#include "toolkit/core/byte_size.h"

#include <charconv>
#include <cmath>
#include <string_view>

namespace dtk {
namespace {

std::optional<double> unit_of(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1.0;
  constexpr std::string_view prefixes = "kMGT";
  const char first = unit.front() == 'K' ? 'k' : unit.front();
  const size_t power = prefixes.find(first);
  if (power == std::string_view::npos) return std::nullopt;
  const double exponent = static_cast<double>(power) + 1;
  if (unit.substr(1) == "B") return std::pow(1000.0, exponent);
  if (unit.substr(1) == "iB") return std::pow(1024.0, exponent);
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> parse_bytes(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::general);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(rest, static_cast<size_t>(end - rest));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const std::optional<double> scale = unit_of(unit);
  if (!scale) return std::nullopt;
  const double bytes = std::floor(number * *scale);
  if (!(bytes >= 0 && bytes < 0x1p63)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::optional<double> parse_percent(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || std::string_view(rest, static_cast<size_t>(end - rest)) != "%")
    return std::nullopt;
  return number > 0 && number <= 100 ? std::optional(number) : std::nullopt;
}

}  // namespace dtk
