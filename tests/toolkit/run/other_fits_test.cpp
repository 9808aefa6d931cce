// What is advised instead of a run that does not fit: by plans whose bytes are a formula here.
#include "toolkit/run/other_fits.h"

#include "support/catch.h"
#include "support/runs/run_world.h"

using namespace dtk;

namespace {

/// Plans 1,000 bytes, 100 for each sample of a pass, and with several passes a sum of gradients of 400.
struct FormulaWorld : test::World {
  OtherFits others(const LoadedConfig& loaded, int64_t limit) {
    world.plan = [this](const LoadedConfig& one, c10::Device) {
      ++plans;
      const int64_t passes = one.config.train.accumulate;
      StartPlan plan;
      plan.memory = MemoryReport{};
      plan.memory->phases = {{"backward", {}}};
      plan.memory->phases[0].peak.bytes =
          1'000 + 100 * (one.config.data.batch / passes) + (passes > 1 ? 400 : 0);
      return plan;
    };
    return {{loaded, judged, at::kCPU, /*with_host=*/false, limit}, world};
  }
  RunWorld world{files, clock, listener, stop};
  StartPlan judged;
  int64_t plans = 0;
};

LoadedConfig of(int64_t batch, int64_t accumulate, int64_t ranks = 1) {
  LoadedConfig loaded = test::tiny("out");
  loaded.config.data.batch = batch;
  loaded.config.train.accumulate = accumulate;
  loaded.ranks = ranks;
  return loaded;
}

}  // namespace

TEST_CASE("other fits: the largest batch, and the least train.accumulate with the batch as it is") {
  FormulaWorld world;
  const LoadedConfig loaded = of(24, 1);
  const OtherFits others = world.others(loaded, 2'000);
  const auto fewer = others.fewer_samples();
  REQUIRE(fewer);
  CHECK((fewer->batch == 10 && fewer->accumulate == 1));
  CHECK(others.accumulate(*fewer) == 4);  // 3 passes of 8 take 2,200 with the sum, 4 of 6 take 2,000
  CHECK_FALSE(others.weights_divided());
}

TEST_CASE("other fits: a train.accumulate that does not fit is none") {
  FormulaWorld world;
  const LoadedConfig loaded = of(16, 1);
  const OtherFits others = world.others(loaded, 1'450);
  const auto fewer = others.fewer_samples();
  REQUIRE(fewer);
  CHECK((fewer->batch == 4 && fewer->accumulate == 1));
  CHECK_FALSE(others.accumulate(*fewer));  // 16 passes of 1 take 1,500
}

TEST_CASE("other fits: where no batch fits with so many passes, one of one pass a rank does") {
  const int64_t ranks = GENERATE(1, 2);
  FormulaWorld world;
  const LoadedConfig loaded = of(16, 4, ranks);
  const OtherFits others = world.others(loaded, ranks == 1 ? 1'300 : 1'499);
  const auto fewer = others.fewer_samples();
  if (ranks == 2) {  // each has a pass, so there is a sum
    CHECK_FALSE(fewer);
    return;
  }
  REQUIRE(fewer);
  CHECK((fewer->batch == 3 && fewer->accumulate == 1));
  CHECK_FALSE(others.accumulate(*fewer));
}

TEST_CASE("other fits: nothing is found where nobody plans, keep is open or a stop is requested") {
  FormulaWorld world;
  LoadedConfig loaded = of(16, 1);
  CHECK(world.others(loaded, 2'000).can_plan());
  world.world.stop_requested = [] { return true; };
  CHECK_FALSE(world.others(loaded, 2'000).fewer_samples());
  world.world.stop_requested = nullptr;
  loaded.config.policies.checkpoint.keep = policies::KeepWord::automatic;
  CHECK_FALSE(world.others(loaded, 2'000).fewer_samples());
  CHECK_FALSE(world.others(loaded, 2'000).can_plan());
  CHECK(world.plans == 0);
  const StartPlan judged;
  const RunWorld nobody{world.files, world.clock, world.listener, world.stop};
  const LoadedConfig again = of(16, 1);
  CHECK_FALSE(OtherFits({again, judged, at::kCPU, false, 2'000}, nobody).can_plan());
}
