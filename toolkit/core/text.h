// Text as messages need it.
#pragma once
#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace dtk {

inline bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
}

inline bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// `text` with control characters, quotes and backslashes escaped as in a TOML string, without the quotes.
std::string escaped(const std::string& text);

/// `text` for a terminal: line breaks and tabs stay, any other control character (C0, DEL and C1, with which
/// a file's name could move the cursor or colour what follows) and what is no UTF-8 becomes "\\x1b".
std::string printable(std::string_view text);

/// A path for a message: its name may hold a line break, with which it could make up a line of its own.
std::string shown(const std::filesystem::path& path);

/// `text` with line breaks in the place of blanks, so that no line is longer than `columns` unless a word is;
/// lines after the first of each of its own begin with two blanks more.
std::string lines_within(const std::string& text, size_t columns);

/// `text` as one word of a shell's command.
std::string shell_quoted(const std::string& text);

/// Byte order, but for runs of digits, which are compared as numbers: "2" before "10", "a9b" before "a10". A
/// total order: what is alike as numbers ("01", "1") goes by bytes.
bool natural_less(std::string_view a, std::string_view b);

/// What lies between the separators: one part more than there are of them.
inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size(); begin += parts.back().size() + 1)
    parts.push_back(text.substr(begin, text.find(separator, begin) - begin));
  return parts;
}

/// "a, b and 3 more": the first `shown` of them.
std::string first_few(const std::vector<std::string>& names, size_t shown);

/// "a", "a or b", "a, b or c".
template <class Strings>
std::string listed(const Strings& items, const char* last_separator, const char* separator = ", ") {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? last_separator : separator;
    text += items[i];
  }
  return text;
}

}  // namespace dtk
