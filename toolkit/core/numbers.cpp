#include "toolkit/core/numbers.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "toolkit/core/format.h"

namespace dtk {
namespace {

std::optional<double> unit_of(std::string_view written) {
  std::string unit(written);
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.empty() || unit == "b") return 1.0;
  constexpr std::string_view prefixes = "kmgt";
  const size_t power = prefixes.find(unit.front());
  if (power == std::string_view::npos) return std::nullopt;
  const double exponent = static_cast<double>(power) + 1;
  const std::string rest = unit.substr(1);
  if (rest.empty() || rest == "b") return std::pow(1000.0, exponent);
  if (rest == "i" || rest == "ib") return std::pow(1024.0, exponent);
  return std::nullopt;
}

}  // namespace

std::string percent_text(int64_t part, int64_t whole) {
  if (whole == 0) return "0 %";
  const int64_t percent = (200 * part + whole) / (2 * whole);
  return percent == 0 && part > 0 ? "<1 %" : fmt::format("{} %", percent);
}

std::string with_separators(int64_t number) {
  std::string text = std::to_string(number);
  const size_t first_digit = number < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first_digit + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string flops_text(int64_t count) {
  const auto flops = static_cast<double>(count);
  if (count == std::numeric_limits<int64_t>::max())
    return fmt::format("more than {:.4g} PFLOP", flops / 1e15);
  if (flops < 1e12) return fmt::format("{:.4g} GFLOP", flops / 1e9);
  return flops < 1e16 ? fmt::format("{:.4g} TFLOP", flops / 1e12) : fmt::format("{:.4g} PFLOP", flops / 1e15);
}

std::string count_text(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string readable_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", value / 1024);
  if (bytes < 1024 * 1024 * 1024) return fmt::format("{:.1f} MiB", value / (1024 * 1024));
  return fmt::format("{:.2f} GiB", value / (1024.0 * 1024 * 1024));
}

std::string exact_bytes(int64_t bytes) {
  return fmt::format("{} ({} bytes)", readable_bytes(bytes), bytes);
}

ByteUnit unit_for(int64_t bytes) {
  constexpr double kibi = 1024, most = 1000;
  const auto value = static_cast<double>(bytes);
  if (value < most * kibi) return {"KiB", kibi, 1};
  if (value < most * kibi * kibi) return {"MiB", kibi * kibi, 1};
  return {"GiB", kibi * kibi * kibi, 2};
}

std::string in_unit(int64_t bytes, const ByteUnit& unit) {
  if (bytes == 0) return "0";
  const double smallest = std::pow(10.0, -unit.decimals), value = static_cast<double>(bytes) / unit.bytes;
  return value < smallest / 2 ? fmt::format("<{:.{}f}", smallest, unit.decimals)
                              : fmt::format("{:.{}f}", value, unit.decimals);
}

std::string with_unit(int64_t bytes, const ByteUnit& unit) {
  return in_unit(bytes, unit) + " " + unit.name;
}

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
