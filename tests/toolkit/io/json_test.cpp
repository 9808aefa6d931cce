#include "toolkit/io/json.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "toolkit/core/errors.h"

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

TEST_CASE("json: a text with many objects takes time in proportion") {
  // With the library's callback 100,000 would take minutes.
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":{}";
  CHECK(parse_strict_json(text + "}", "text", 3).size() == 100'000);
}

TEST_CASE("json: what is refused") {
  const auto refusal = [](const std::string& text, int max_depth) {
    return test::error_text<FileError>([&] { parse_strict_json(text, "t", max_depth); });
  };
  CHECK(refusal("{\"a\": [[1]]}", 2) == "t nests deeper than 2 levels");
  CHECK(refusal("{\"a\": [[1]]}", 3) == "(nothing was thrown)");
  CHECK(refusal("{\"a\": 1, \"b\": {\"a\": 1}, \"a\": 2}", 3) == "t has the key \"a\" twice");
  CHECK(refusal("[1e999]", 3) == "t holds a number that is too large");
  CHECK(refusal("{\"a\" 1}", 3) == "t is not JSON (at byte 6)");
}

}  // namespace dtk
