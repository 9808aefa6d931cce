#include "toolkit/core/range.h"

#include <charconv>
#include <limits>
#include <stdexcept>

namespace dtk {
namespace {

[[noreturn]] void not_an_interval(std::string_view text) {
  throw std::logic_error("\"" + std::string(text) + "\" is not an interval such as [0, 1)");
}

double parse_bound(std::string_view bound, std::string_view whole) {
  double value = 0;
  const char* const end = bound.data() + bound.size();
  const auto result = std::from_chars(bound.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) not_an_interval(whole);
  return value;
}

}  // namespace

bool Interval::contains(double value) const {
  const bool above = lower_included ? value >= lower : value > lower;
  const bool below = upper_included ? value <= upper : value < upper;
  return above && below;
}

Interval parse_interval(std::string_view text) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (text.empty()) return {-inf, inf, false, false};
  const size_t comma = text.find(", ");
  if (text.size() < 6 || comma == std::string_view::npos) not_an_interval(text);
  const char open = text.front();
  const char close = text.back();
  if ((open != '[' && open != '(') || (close != ']' && close != ')')) not_an_interval(text);
  return {parse_bound(text.substr(1, comma - 1), text),
          parse_bound(text.substr(comma + 2, text.size() - comma - 3), text), open == '[', close == ']'};
}

bool is_choice(std::string_view choices, std::string_view value) {
  constexpr std::string_view separator = " | ";
  while (true) {
    const size_t end = choices.find(separator);
    if (choices.substr(0, end) == value) return true;
    if (end == std::string_view::npos) return false;
    choices.remove_prefix(end + separator.size());
  }
}

}  // namespace dtk
