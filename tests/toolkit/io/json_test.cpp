#include "toolkit/io/json.h"

#include "support/catch.h"

namespace dtk {

TEST_CASE("json: whole numbers, and what only looks like one") {
  const auto number = [](const char* text) { return whole_number(nlohmann::json::parse(text)); };
  CHECK(number("0") == 0);
  CHECK(number("-7") == -7);
  CHECK(number("3.0") == 3);
  CHECK(number("9223372036854775807") == INT64_MAX);
  CHECK(number("-9223372036854775808") == INT64_MIN);
  for (const char* other : {"39.9", "1e300", "-1e300", "18446744073709551615", "9223372036854775808",
                            "9.3e18", "true", "null", "\"3\"", "[3]"}) {
    INFO(other);
    CHECK_FALSE(number(other));
  }
}

}  // namespace dtk
