// How many steps of a job its plan runs, where a policy acts every so many.
#include "toolkit/plan/planned_run.h"

#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/error_text.h"
#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"
#include "toolkit/plan/null_world.h"

using namespace dtk;

namespace {

using dtk::test::kCuda;

LoadedConfig job(int64_t every, int64_t steps) {
  std::vector<std::string> settings = {
      "data.kind=synthetic", "data.samples=60", "data.batch=8",   "train.accumulate=2", "train.threads=1",
      "model.depth=2",       "model.hidden=16", "model.heads=2",  "model.patch=4",      "model.image_size=8",
      "model.channels=1",    "model.classes=4", "sample.steps=3", "sample.per_class=1"};
  settings.push_back("train.steps=" + std::to_string(steps));
  settings.push_back("policies.ema.every=" + std::to_string(every));
  return parse_config("", "job", settings);
}

struct Figures {
  int64_t device = 0, host = 0;
  friend bool operator==(const Figures&, const Figures&) = default;
};

Figures peaks(const PlannedRun& run) {
  return {policies::highest(run.memory.device).peak.bytes, policies::highest(run.memory.host).peak.bytes};
}

}  // namespace

TEST_CASE("a plan runs until the work of the policies repeats, however long that takes") {
  const Figures each = peaks(plan_run(job(1, 20), kCuda));
  CHECK(each.host > 0);  // the copies of the step in which the average changes
  const PlannedRun fifth = plan_run(job(5, 20), kCuda);
  CHECK(peaks(fifth) == each);
  CHECK(fifth.memory.steps.size() == 6);
  CHECK(plan_run(job(100, 1000), kCuda).memory.steps.size() == 101);
  for (const int64_t interval : {int64_t{101}, int64_t{1'000'000'000}, INT64_MAX}) {
    const PlannedRun rarely = plan_run(job(interval, interval), kCuda);
    CHECK(peaks(rarely) == each);
    CHECK(rarely.memory.steps.size() == 5);
    const int64_t two = interval > INT64_MAX / 2 ? INT64_MAX : 2 * interval;
    CHECK(rarely.memory.folded.at("steady steps") == two - 4);
    const auto ema = std::find_if(rarely.policies.begin(), rarely.policies.end(),
                                  [](const auto& report) { return report.policy == "ema"; });
    REQUIRE(ema != rarely.policies.end());
    const std::string own = ", one update every " + std::to_string(interval) + " steps";
    CHECK(ema->reason.find(own) != std::string::npos);
  }
}

TEST_CASE("a plan of every step refuses what would take too long") {
  CHECK(plan_run(job(101, 300), kCuda, {.fold = false}).memory.steps.size() == 203);
  const LoadedConfig long_one = job(1001, 3000);
  CHECK(test::error_text<Error>([&] { plan_run(long_one, kCuda, {.fold = false}); }) ==
        "the policies repeat their work after 1001 steps; a plan that leaves none out runs at most 1000 of "
        "them, "
        "twice; plan without --no-fold, or with --set policies.ema.every=1000 or less");
}

TEST_CASE("steps are alike, and return to the first, as the books after them say") {
  const policies::CountingAllocatorGuard counting;
  at::Tensor held;
  std::vector<bool> seen;
  PlanObserver observer([&](const PlanObserver& books, const RunResult&) {
    seen = {books.alike(2), books.alike(3), books.alike(4), books.returns_to_first()};
  });
  const auto step = [&](bool holds) {
    held = holds ? at::empty({100}) : at::Tensor();
    observer.progress({});
  };
  for (const bool holds : {false, false, true}) step(holds);
  observer.finished({});
  CHECK(seen == std::vector<bool>{true, false, false, false});
  step(false);
  observer.finished({});
  CHECK(seen == std::vector<bool>{true, false, false, true});
  CHECK(observer.ended());
}

TEST_CASE("a batch that no epoch could hold is refused, not counted past the largest number") {
  LoadedConfig loaded = job(1, 20);
  loaded.config.data.batch = int64_t{1} << 62;
  CHECK(test::error_text<ConfigError>([&] { (void)plan_run(loaded, kCuda); }) ==
        "data.batch = 4611686018427387904: a plan has data for 3 batches, and an epoch at most 4294967295 "
        "samples; use a smaller data.batch");
}
