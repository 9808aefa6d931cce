// The texts of an enum, written once: beside an enum E that texts know stands
//   constexpr auto enum_texts(E) { return std::array{std::pair{E::one, "one"}, std::pair{E::other, "other"}};
//   }
// in the order in which messages list them. A value may have none.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dtk::policies {

template <class E>
concept TextEnum = requires {
  enum_texts(E{});
};

/// "" for a value that has none.
template <TextEnum E>
std::string text_of(E value) {
  for (const auto& [one, text] : enum_texts(value)) {
    if (one == value) return text;
  }
  return "";
}

/// Nothing for a text of none of its values.
template <TextEnum E>
std::optional<E> parse_enum(std::string_view text) {
  for (const auto& [one, its] : enum_texts(E{})) {
    if (its == text) return one;
  }
  return std::nullopt;
}

/// "cpu | same"
template <TextEnum E>
std::string choices_of() {
  std::string choices;
  for (const auto& [one, text] : enum_texts(E{}))
    choices += (choices.empty() ? "" : " | ") + std::string(text);
  return choices;
}

}  // namespace dtk::policies
