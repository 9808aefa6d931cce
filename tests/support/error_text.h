// The exact text of an expected error.
#pragma once
#include <string>
#include <string_view>

namespace dtk::test {

/// Equals no message of an error.
inline constexpr std::string_view nothing_thrown = "(nothing was thrown)";

/// what() of the `Expected` that `action` throws, or nothing_thrown; other types pass through.
template <class Expected, class Action>
std::string error_text(Action&& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  return std::string(nothing_thrown);
}

}  // namespace dtk::test
