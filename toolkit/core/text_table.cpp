#include "toolkit/core/text_table.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "toolkit/core/format.h"

namespace dtk {

std::string pad(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

namespace {

// Of the word at `begin`, which "4.5 MiB" is one of: a number stays with its unit.
size_t end_of_word(const std::string& text, size_t begin) {
  const size_t end = std::min(text.find(' ', begin), text.size());
  for (const char* unit : {" B", " KiB", " MiB", " GiB"}) {
    const size_t after = end + std::strlen(unit);
    const bool whole = after >= text.size() || std::isalnum(static_cast<unsigned char>(text[after])) == 0;
    if (text.compare(end, after - end, unit) == 0 && whole)
      return std::min(text.find(' ', after), text.size());
  }
  return end;
}

}  // namespace

std::string wrapped(const std::string& text, size_t first_column) {
  std::string lines;
  size_t at = first_column;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = end_of_word(text, begin);
    const std::string word = text.substr(begin, end - begin);
    if (at > first_column && at + 1 + word.size() >= terminal_width) {
      lines += "\n" + std::string(first_column, ' ');
      at = first_column;
    }
    if (at > first_column) lines += ' ', ++at;
    lines += word;
    at += word.size();
    begin = end + 1;
  }
  return lines;
}

std::string entry(const std::string& start, size_t column, const std::string& text) {
  return fmt::format("{}{}{}\n", start, std::string(column - std::min(column, start.size()), ' '),
                     wrapped(text, column));
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  size_t wide = 0;  // with two spaces between columns
  for (const size_t width : widths) wide += width + 2;
  const std::string gap(wide - 2 < terminal_width ? 2 : 1, ' ');
  std::string text;
  for (const auto& row : rows) {
    text += row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (size_t i = 1; i < row.size(); ++i) text += gap + pad(row[i], widths[i]);
    text += "\n";
  }
  return text;
}

}  // namespace dtk
