// Intervals as they are written in the field lists: "[1, inf)", "(0, 1]".
#pragma once
#include <string>
#include <string_view>

namespace dtk {

struct Interval {
  double lower, upper;
  bool lower_included, upper_included;

  /// False for NaN.
  bool contains(double value) const;
};

/// "" is every finite number. Throws std::logic_error for anything that is not an interval: the texts come
/// from source code, not from users.
Interval parse_interval(std::string_view text);

/// The items of "a | b | c".
bool is_choice(std::string_view choices, std::string_view value);

}  // namespace dtk
