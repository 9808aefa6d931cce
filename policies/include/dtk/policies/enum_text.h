// The texts of an enum, written once: below an enum E of 0, 1, ... that texts know stands
//   constexpr auto enum_texts(E) { return std::array{"zero", "one"}; }
// The last values may have none.
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace dtk::policies {

template <class E>
concept TextEnum = requires {
  enum_texts(E{});
};

/// "" for a value that has none.
template <TextEnum E>
std::string text_of(E value) {
  const auto texts = enum_texts(value);
  const auto index = static_cast<size_t>(value);
  return index < texts.size() ? texts[index] : "";
}

/// Nothing for a text of none of its values.
template <TextEnum E>
std::optional<E> parse_enum(std::string_view text) {
  const auto texts = enum_texts(E{});
  const auto found = std::find(texts.begin(), texts.end(), text);
  return found == texts.end() ? std::nullopt : std::optional(static_cast<E>(found - texts.begin()));
}

/// "cpu | same"
template <TextEnum E>
std::string choices_of() {
  std::string choices;
  for (const char* const text : enum_texts(E{}))
    choices += (choices.empty() ? "" : " | ") + std::string(text);
  return choices;
}

}  // namespace dtk::policies
