// How far a misspelt name is from another, for messages that guess what was meant.
#pragma once
#include <cstddef>
#include <string_view>

namespace dtk::policies {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, ignoring ASCII case.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace dtk::policies
