#include "core/figures.h"

#include <algorithm>
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

bool is_state(policies::Category category) {
  using policies::Category;
  switch (category) {
    case Category::casts:
    case Category::saved:
    case Category::offloaded:
    case Category::data:
    case Category::temporaries:
    case Category::scratch:
      return false;
    default:
      return true;
  }
}

std::string paragraph(std::string start, const std::string& text, size_t column) {
  constexpr size_t width = 80;
  start.resize(std::max(column, start.empty() ? 0 : start.size() + 1), ' ');
  std::string lines = std::move(start);
  size_t at = column;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(' ', begin), text.size());
    if (text.compare(end, 2, " %") == 0) end = std::min(text.find(' ', end + 1), text.size());
    if (at > column && at + 1 + end - begin >= width) {
      lines += "\n" + std::string(column, ' ');
      at = column;
    } else if (at > column) {
      lines += ' ';
      ++at;
    }
    lines += text.substr(begin, end - begin);
    at += end - begin;
    begin = end + 1;
  }
  return lines + "\n";
}

}  // namespace dtk::planner
