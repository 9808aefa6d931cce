#include "toolkit/core/text.h"

#include "support/catch.h"

namespace dtk {

TEST_CASE("text: what a file calls itself does nothing to a terminal") {
  CHECK(printable("a b\tc\n\"\\") == "a b\tc\n\"\\");
  CHECK(printable("evil\x1b[2J\x1b[31mname\r\x07\x7f") == "evil\\x1b[2J\\x1b[31mname\\x0d\\x07\\x7f");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable("\u00e9 \u20ac \U0001F600 \u00a0") == "\u00e9 \u20ac \U0001F600 \u00a0");
  CHECK(printable("\u009b31m") == "\\xc2\\x9b31m");  // the same as ESC [
  // No UTF-8: cut off, too long, a surrogate, beyond the last character, a byte that begins none.
  CHECK(printable("a\xc3") == "a\\xc3");
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");
  CHECK(printable("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("\xff\x80z") == "\\xff\\x80z");
}

TEST_CASE("text: a path is shown on one line") {
  CHECK(shown("a/b\nforged: all is well.png") == "a/b\\x0aforged: all is well.png");
}

TEST_CASE("text: names in the order that people count in") {
  const std::vector<std::string> sorted = {"",  "0",  "00",    "01",   "1",  "2",   "9a",  "10", "10a", "A",
                                           "a", "a1", "a1b10", "a1c2", "a2", "a10", "a10", "b",  "\xff"};
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = 0; j < sorted.size(); ++j)
      CHECK(natural_less(sorted[i], sorted[j]) == (i < j && sorted[i] != sorted[j]));
  }
  CHECK(natural_less("99999999999999999999998", "99999999999999999999999"));  // beyond any integer
}

TEST_CASE("text: long lines are broken at blanks, and go on below their beginning") {
  CHECK(lines_within("one two three four", 9) == "one two\n  three\n  four");
  CHECK(lines_within("  a: one two\nb", 8) == "  a: one\n    two\nb");
  CHECK(lines_within("unbreakable", 4) == "unbreakable");
  CHECK(lines_within("", 4).empty());
  CHECK(lines_within("fits as it is", 13) == "fits as it is");
}

TEST_CASE("text: one word of a shell's command") {
  CHECK(shell_quoted("runs/mine-2_a.b") == "runs/mine-2_a.b");
  CHECK(shell_quoted("my runs") == "'my runs'");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("$(x)") == "'$(x)'");
}

}  // namespace dtk
