#pragma once
#include <string>

namespace dtk::test {

/// The words of a text that was broken into lines and columns, with one space between them.
inline std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n';
    if (!space || (!line.empty() && line.back() != ' ')) line += space ? ' ' : c;
  }
  return line;
}

}  // namespace dtk::test
