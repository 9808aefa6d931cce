#include "core/figures.h"

#include <cstdlib>

namespace dtk::planner {

std::string digits(int64_t number) {
  std::string text = std::to_string(std::abs(number));
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return (number < 0 ? "-" : "") + text;
}

std::string bytes_text(int64_t number) {
  return digits(number) + (number == 1 ? " byte" : " bytes");
}

std::string percent_text(int64_t part, int64_t whole) {
  const int64_t rounded = whole > 0 ? (200 * part + whole) / (2 * whole) : 0;
  return rounded == 0 && part > 0 ? "<1 %" : std::to_string(rounded) + " %";
}

}  // namespace dtk::planner
