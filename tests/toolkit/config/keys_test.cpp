// The list of all keys.
#include "toolkit/config/keys.h"

#include <set>
#include <string>

#include "support/catch.h"

TEST_CASE("config keys: each says what it is for, and no two of a table the same") {
  dtk::RunConfig config;
  std::set<std::string> said;
  dtk::visit_keys(config, [&](const std::string& table, const std::string& name, const auto&,
                              const std::string&, const char* meaning) {
    INFO(table << "." << name);
    CHECK(std::string(meaning).size() > 4);
    CHECK(said.insert(table + ": " + meaning).second);
  });
  CHECK(said.size() == dtk::all_keys().size());
}
