#include "toolkit/run/memory_growth.h"

#include "support/catch.h"
#include "support/runs/run_world.h"

namespace dtk {
namespace {

constexpr int64_t kMiB = 1 << 20;

/// Steps at which it was told, reading every 10 steps up to `last`.
template <class Bytes>
std::vector<int64_t> told(int64_t last, const Bytes& bytes) {
  MemoryGrowth growth;
  std::vector<int64_t> steps;
  for (int64_t step = 10; step <= last; step += 10) {
    if (growth.add(step, bytes(step))) steps.push_back(step);
  }
  return steps;
}

}  // namespace

TEST_CASE("memory growth: what rises step by step is told of, once for each 1,000 steps") {
  CHECK(told(3000, [](int64_t step) { return 100 * kMiB + step * 2000; }) == std::vector<int64_t>{2250});
  CHECK(told(6000, [](int64_t step) { return 100 * kMiB + step * 2000; }).size() == 4);
}

TEST_CASE("memory growth: rarer readings are of more steps") {
  MemoryGrowth growth;
  std::optional<MemoryGrowth::Growth> last;
  for (int64_t step = 500; step <= 5000 && !last; step += 500) last = growth.add(step, step * 4000);
  REQUIRE(last);
  CHECK(last->steps == 2000);
  CHECK(last->bytes == 8'000'000);
}

TEST_CASE("memory growth: what only moves about is not") {
  CHECK(told(20'000, [](int64_t) { return 100 * kMiB; }).empty());
  CHECK(told(20'000, [](int64_t step) { return step % 70 * kMiB; }).empty());              // a saw
  CHECK(told(20'000, [](int64_t step) { return step < 900 ? step * kMiB : 0; }).empty());  // at the start
  CHECK(told(20'000, [](int64_t step) { return step > 5000 ? 90 * kMiB : 0; }).empty());   // one rise
  CHECK(told(20'000, [](int64_t step) { return step * 500; }).empty());  // half a megabyte in 1,000 steps
}

TEST_CASE("memory growth: a run that leaks says so, and its report has both curves") {
  test::World world;
  LoadedConfig loaded = test::tiny("out");
  loaded.config.train.steps = 2600;
  loaded.config.train.checkpoint_every = 0;
  int64_t held = 500 * kMiB;
  const auto resident = [&]() -> std::optional<int64_t> { return held += 20'000; };
  run_training(loaded, at::kCPU, {}, test::images_of(loaded, world.data),
               {world.files, world.clock, world.listener, world.stop, {}, {}, resident});
  CHECK(world.files.read("out/log.jsonl").find("\"event\":\"memory_grows\"") != std::string::npos);
  CHECK(world.files.read("out/report.html").find("data-chart=\"process_memory\"") != std::string::npos);
  int said = 0;
  for (const std::string& message : world.listener.messages)
    said +=
        message.find(" more than 1,000 steps before, beside what is counted") != std::string::npos ? 1 : 0;
  CHECK(said == 1);
}

}  // namespace dtk
