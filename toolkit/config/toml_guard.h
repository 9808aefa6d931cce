// What toml++ 3.3, which Debian 12 has, does not survive, refused before it sees a text: keys of 100,000
// parts (they overflow its stack), characters beyond ASCII where only a key may begin and a comment in a
// header (which it takes for impossible), and keys of megabytes (quadratic time).
#pragma once
#include <string_view>

namespace dtk {

/// Throws SyntaxError (document.h) for a key of more than 16 parts or 1,024 bytes, a character beyond ASCII
/// outside of texts and comments, which no TOML document has, or a comment within a table's header. Anything
/// else is toml++'s to judge.
void guard_toml(std::string_view text);

}  // namespace dtk
