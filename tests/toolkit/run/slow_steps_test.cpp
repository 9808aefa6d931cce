#include "toolkit/run/slow_steps.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "support/runs/run_world.h"

namespace dtk {

TEST_CASE("slow steps: by the median of those before, of which the first are too few") {
  SlowSteps slow(5);
  for (int i = 0; i < 20; ++i) CHECK_FALSE(slow.add({.seconds = i == 10 ? 100.0 : 1.0}));
  CHECK_FALSE(slow.add({.seconds = 5.0}));
  CHECK(slow.add({.seconds = 5.1}) == 1.0);
  // What has become usual is slow no more.
  for (int i = 0; i < 101; ++i) slow.add({.seconds = 10.0});
  CHECK_FALSE(slow.add({.seconds = 49.0}));
  CHECK(slow.add({.seconds = 51.0}) == 10.0);
}

TEST_CASE("slow steps: where they waited") {
  CHECK(where_it_waited({.seconds = 10, .data = 9, .device = 1, .disk = 0}) == "9 s of it waiting for data");
  CHECK(where_it_waited({.seconds = 10, .data = 1, .device = 6, .disk = 2}) ==
        "6 s of it waiting for the device");
  CHECK(where_it_waited({.seconds = 10, .data = 0, .device = 0, .disk = 8}) ==
        "8 s of it waiting for the disk");
  CHECK(where_it_waited({.seconds = 10, .data = 2, .device = 2, .disk = 2}) ==
        "most of it neither waiting for data nor for device or disk");
}

TEST_CASE("slow steps: a run tells of them") {
  test::World world;
  LoadedConfig loaded = test::tiny("out");
  loaded.config.train.steps = 40;
  loaded.config.train.slow_step = 10;
  loaded.config.train.checkpoint_every = 0;
  double now = 0;
  int64_t asked = 0;
  // The watch is asked twice a step, and four times more where a line is logged; one step takes long.
  const auto watch = [&] { return now += ++asked == 90 ? 30.0 : 0.1; };
  run_training(loaded, at::kCPU, {}, test::images_of(loaded, world.data),
               {world.files, world.clock, world.listener, world.stop, {}, watch});
  int slow = 0;
  std::istringstream lines(world.files.read("out/log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["event"] != "slow_step") continue;
    ++slow;
    CHECK(json["steps"] == 1);
    CHECK(json["seconds"].get<double>() > 29);
    CHECK(json["median_seconds"].get<double>() == Approx(0.1));
  }
  CHECK(slow == 1);
  CHECK(std::count_if(world.listener.messages.begin(), world.listener.messages.end(),
                      [](const std::string& text) {
                        return text.find(" times the median of 0.1 s") != std::string::npos;
                      }) == 1);
}

}  // namespace dtk
