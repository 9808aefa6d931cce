// What is advised instead of a run that does not fit: by plans whose bytes are a formula here.
#include "toolkit/run/other_fits.h"

#include <functional>
#include <utility>

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
      const bool divided = one.config.policies.shard.level == policies::ShardLevel::parameters;
      StartPlan plan;
      if (is_refused && is_refused(one.config)) {
        plan.refusal = "refused";
        return plan;
      }
      plan.memory = MemoryReport{};
      plan.memory->phases = {{"backward", {}}};
      plan.memory->phases[0].peak.bytes =
          1'000 + 100 * (one.config.data.batch / passes) + (passes > 1 ? 400 : 0) - (divided ? 500 : 0);
      return plan;
    };
    return {{loaded, judged, at::kCPU, /*with_host=*/false, limit}, world};
  }
  RunWorld world{files, clock, listener, stop};
  StartPlan judged;
  std::function<bool(const RunConfig&)> is_refused;
  int64_t plans = 0;
};

LoadedConfig of(int64_t batch, int64_t accumulate, int64_t ranks = 1) {
  LoadedConfig loaded = test::tiny("out");
  loaded.config.data.batch = batch;
  loaded.config.train.accumulate = accumulate;
  loaded.ranks = ranks;
  return loaded;
}

using Step = std::pair<int64_t, int64_t>;  // data.batch, train.accumulate

Step largest_in(const FewerSamples& found) {
  CHECK(found.is_known);
  REQUIRE(found.most);
  return {found.most->batch, found.most->accumulate};
}

}  // namespace

TEST_CASE("other fits: the largest batch, and the least train.accumulate with the batch as it is") {
  FormulaWorld world;
  const LoadedConfig loaded = of(24, 1);
  const OtherFits others = world.others(loaded, 2'000);
  const FewerSamples found = others.fewer_samples();
  CHECK(largest_in(found) == Step(10, 1));
  CHECK(others.accumulate(found) == 4);  // 3 passes of 8 take 2,200 with the sum, 4 of 6 take 2,000
}

TEST_CASE("other fits: a train.accumulate that does not fit is none") {
  FormulaWorld world;
  const LoadedConfig loaded = of(16, 1);
  const OtherFits others = world.others(loaded, 1'450);
  const FewerSamples found = others.fewer_samples();
  CHECK(largest_in(found) == Step(4, 1));
  CHECK_FALSE(others.accumulate(found));  // 16 passes of 1 take 1,500
}

TEST_CASE("other fits: where no batch fits with so many passes, one of one pass a rank does") {
  const int64_t ranks = GENERATE(1, 2);
  FormulaWorld world;
  const LoadedConfig loaded = of(16, 4, ranks);
  const OtherFits others = world.others(loaded, ranks == 1 ? 1'300 : 1'499);
  const FewerSamples found = others.fewer_samples();
  if (ranks == 2) {  // each has a pass, so there is a sum
    CHECK(found.is_known);
    CHECK_FALSE(found.most);
    return;
  }
  CHECK(largest_in(found) == Step(3, 1));
  CHECK_FALSE(others.accumulate(found));
}

TEST_CASE("other fits: a plan that is refused, a stop, or too long a search leaves open what fits") {
  FormulaWorld world;
  const LoadedConfig loaded = of(24, 1);
  const auto [stops, seconds] = GENERATE(std::pair(false, 0), std::pair(true, 0), std::pair(false, 11));
  world.world.watch = [&world, each = seconds] { return 5. + static_cast<double>(each * world.plans); };
  if (stops) {
    world.world.stop_requested = [&] { return world.plans > 1; };
  } else if (seconds == 0) {
    world.is_refused = [](const RunConfig& config) { return config.data.batch == 1; };
  }
  const FewerSamples found = world.others(loaded, 2'000).fewer_samples();
  CHECK_FALSE(found.is_known);
  CHECK_FALSE(found.most);
}

TEST_CASE("other fits: nothing is known where nobody plans or keep is open") {
  FormulaWorld world;
  LoadedConfig loaded = of(24, 1);
  loaded.config.policies.checkpoint.keep = policies::KeepWord::automatic;
  CHECK_FALSE(world.others(loaded, 2'000).fewer_samples().is_known);
  CHECK(world.plans == 0);
  const RunWorld nobody{world.files, world.clock, world.listener, world.stop};
  const LoadedConfig other = of(24, 1);
  CHECK_FALSE(OtherFits({other, world.judged, at::kCPU, false, 2'000}, nobody).fewer_samples().is_known);
}

TEST_CASE("other fits: weights that ranks divide, where they need not and it helps") {
  FormulaWorld world;
  LoadedConfig loaded = of(16, 2, 2);  // 2,200 bytes, divided 1,700
  loaded.config.policies.shard.level = policies::ShardLevel::optimizer;
  CHECK(world.others(loaded, 1'700).weights_divided());
  CHECK_FALSE(world.others(loaded, 1'699).weights_divided());
  loaded.ranks = 1;
  CHECK_FALSE(world.others(loaded, 1'700).weights_divided());
}
