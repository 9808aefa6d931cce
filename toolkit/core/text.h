// Text as messages need it.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <string>

namespace dtk {

inline bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
}

/// `text` with control characters, quotes and backslashes escaped as in a TOML string, without the quotes.
std::string escaped(const std::string& text);

/// "a", "a or b", "a, b or c".
template <class Strings>
std::string listed(const Strings& items, const char* last_separator) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? last_separator : ", ";
    text += items[i];
  }
  return text;
}

}  // namespace dtk
