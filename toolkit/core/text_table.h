// Tables and paragraphs for a terminal.
#pragma once
#include <string>
#include <vector>

namespace dtk {

inline constexpr size_t terminal_width = 80;  // columns; a line that fills them all may wrap

/// `text` after spaces up to `width`.
std::string pad(const std::string& text, size_t width);

/// Breaks `text` between words where it would reach the terminal's edge; all lines begin at `first_column`.
std::string wrapped(const std::string& text, size_t first_column);

/// A line that begins with `start`, and in column `column`, which that does not reach, with `text` as
/// wrapped() breaks it.
std::string entry(const std::string& start, size_t column, const std::string& text);

/// Lines of columns as wide as their widest cell: the first to the left, the others to the right. Rows must
/// be equally long.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

}  // namespace dtk
