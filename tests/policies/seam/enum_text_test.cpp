// The texts of an enum, there and back.
#include <dtk/policies/enum_text.h>

#include <catch2/catch.hpp>

using namespace dtk::policies;

namespace elsewhere {

enum class Colour { red, green, unnamed };
constexpr auto enum_texts(Colour) {
  return std::array{"red", "light green"};
}
enum class Plain { one };

}  // namespace elsewhere

using elsewhere::Colour;

TEST_CASE("an enum's texts: there and back, what has none, and all as a choice") {
  CHECK(text_of(Colour::green) == "light green");
  CHECK(parse_enum<Colour>("light green") == Colour::green);
  CHECK(text_of(Colour::unnamed).empty());
  CHECK_FALSE(parse_enum<Colour>(""));
  CHECK_FALSE(parse_enum<Colour>("Red"));
  CHECK(choices_of<Colour>() == "red | light green");
  CHECK(TextEnum<Colour>);
  CHECK_FALSE(TextEnum<elsewhere::Plain>);
}
