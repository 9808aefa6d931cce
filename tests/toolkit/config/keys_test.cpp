// The list of all keys.
#include "toolkit/config/keys.h"

#include <iterator>
#include <set>
#include <string>
#include <type_traits>

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

TEST_CASE("config keys: a walk over a constant configuration changes nothing, another what it wants to") {
  dtk::RunConfig config;
  const dtk::RunConfig& constant = config;
  int64_t fields = 0;
  dtk::visit_keys(constant, [&](const std::string&, const std::string&, auto& member, const auto&...) {
    static_assert(std::is_const_v<std::remove_reference_t<decltype(member)>>);
    ++fields;
  });
  CHECK(fields == std::ssize(dtk::all_keys()));
  CHECK(config == dtk::RunConfig());
  dtk::visit_keys(config,
                  [](const std::string& table, const std::string& name, auto& member, const auto&...) {
                    if constexpr (std::is_same_v<decltype(member), std::string&>) {
                      if (table == "train" && name == "on_not_finite") member = "skip";
                    }
                  });
  CHECK(config.train.on_not_finite == dtk::NotFinite::skip);
  config.train.on_not_finite = dtk::NotFinite::stop;
  CHECK(config == dtk::RunConfig());
}
