#include "toolkit/report/level_choice.h"

#include <stdexcept>
#include <string>

#include "support/catch.h"
#include "toolkit/config/rules.h"

using namespace dtk;
using policies::ShardLevel;

namespace {

LoadedConfig open_job(int64_t ranks) {
  LoadedConfig loaded;
  loaded.ranks = ranks;
  loaded.config.policies.shard.level = ShardLevel::automatic;
  loaded.config.policies.shard.prefetch = 3;
  loaded.config.policies.shard.gather = policies::ShardGather::bf16;
  loaded.config.memory.budget = ByteSize{1000};
  return loaded;
}

}  // namespace

TEST_CASE("level = auto: the first that fits the budget by the plan of \"optimizer\"") {
  for (const int64_t bytes : {int64_t{1000}, int64_t{1001}}) {
    LoadedConfig loaded = open_job(2);
    int plans = 0;
    const std::string line = choose_level(loaded, [&](const LoadedConfig& one) {
      const bool is_first = ++plans == 1;
      CHECK(one.config.policies.shard.level == (is_first ? ShardLevel::optimizer : ShardLevel::parameters));
      CHECK(one.config.policies.shard.prefetch == (is_first ? 1 : 3));
      return PlannedBytes{is_first ? bytes : 700};
    });
    const bool fits = bytes == 1000;
    CHECK(plans == (fits ? 1 : 2));
    CHECK(loaded.config.policies.shard.level == (fits ? ShardLevel::optimizer : ShardLevel::parameters));
    CHECK(loaded.config.policies.shard.prefetch == (fits ? 1 : 3));
    CHECK((loaded.config.policies.shard.gather == policies::ShardGather::bf16) == !fits);
    CHECK(line ==
          (fits
               ? "level = \"auto\": \"optimizer\", as \"optimizer\" takes 1000 bytes by its plan, within "
                 "memory.budget = 1000"
               : "level = \"auto\": \"parameters\", as \"optimizer\" takes 1001 bytes by its plan, more than "
                 "memory.budget = 1000, and \"parameters\" 700"));
    CHECK(loaded.origins.at("policies.shard.level").source == Origin::Source::chosen);
    CHECK_FALSE(level_is_open(loaded.config));
  }
}

TEST_CASE("level = auto: where neither fits, the smaller is taken, and a run is told of both") {
  LoadedConfig loaded = open_job(2);
  int plans = 0;
  CHECK(choose_level(loaded, [&](const LoadedConfig&) { return PlannedBytes{++plans == 1 ? 1001 : 1002}; }) ==
        "level = \"auto\": \"optimizer\", as \"optimizer\" takes 1001 bytes by its plan, more than "
        "memory.budget = 1000, and \"parameters\" 1002");
  CHECK(loaded.config.policies.shard.level == ShardLevel::optimizer);
}

TEST_CASE("level = auto: \"parameters\" where \"optimizer\" cannot be planned, and nothing to choose alone") {
  const auto unasked = [](const LoadedConfig&) -> PlannedBytes { throw std::logic_error("a plan"); };
  LoadedConfig unplanned = open_job(2);
  CHECK(choose_level(unplanned, [](const LoadedConfig&) {
          return PlannedBytes{std::nullopt, "no dit-plan"};
        }) == "level = \"auto\": \"parameters\", as \"optimizer\" cannot be planned: no dit-plan");
  CHECK(unplanned.config.policies.shard.prefetch == 3);
  LoadedConfig alone = open_job(1);
  CHECK(choose_level(alone, unasked).empty());
  CHECK(level_is_open(alone.config));
  CHECK(alone.config.policies.shard.prefetch == 3);
  LoadedConfig set = open_job(2);
  set.config.policies.shard.level = ShardLevel::parameters;
  CHECK(choose_level(set, unasked).empty());
  take_level(set.config, ShardLevel::optimizer);
  CHECK(set.config.policies.shard.level == ShardLevel::parameters);
  CHECK(set.config.policies.shard.prefetch == 3);
}
