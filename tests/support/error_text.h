// The exact text of an expected error.
#pragma once
#include <string>

namespace dtk::test {

/// what() of the `Expected` that `action` throws, or a text that equals no message; other types pass through.
template <class Expected, class Action>
std::string error_text(Action&& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace dtk::test
