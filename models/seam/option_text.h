// Numbers and words in messages about options.
#pragma once
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

namespace dtk::models {

inline std::string text(double value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return std::string(digits.data(), end);
}

/// Of an enum with texts: enum_texts(E).
template <class E>
requires requires {
  enum_texts(E{});
}
std::string text(E value) {
  return enum_texts(value)[static_cast<size_t>(value)];
}

/// The multiples of `step` next to `value`: "20 or 40".
inline std::string near_multiples(int64_t value, int64_t step) {
  const int64_t below = value / step * step;
  std::string found = below > 0 ? std::to_string(below) : "";
  if (below <= std::numeric_limits<int64_t>::max() - step) {
    found += (found.empty() ? "" : " or ") + std::to_string(below + step);
  }
  return found;
}

}  // namespace dtk::models
