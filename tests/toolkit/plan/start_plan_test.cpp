// What dit-train asks of dit-plan before a run, and how it is answered.
#include "toolkit/plan/start_plan.h"

#include "support/catch.h"
#include "support/runs/image_run.h"
#include "support/runs/run_world.h"
#include "toolkit/plan/plan.h"
#include "toolkit/report/plan_summary.h"

using namespace dtk;

namespace {

StartPlan asked(const LoadedConfig& loaded, const std::string& device) {
  return read_start_plan(start_plan_json(start_plan_request_json({loaded, device})), "answer");
}

}  // namespace

TEST_CASE("start plan: the answer is the run's plan, whatever memory.budget is") {
  const std::string device = GENERATE("cpu", "cuda:0");
  LoadedConfig loaded = test::tiny("out");
  loaded.config.memory.budget = ByteSize{1};
  const Plan plan = make_plan(loaded, c10::Device(device));
  const StartPlan answer = asked(loaded, device);
  REQUIRE(answer.memory);
  CHECK(answer.memory->peak().peak.bytes == plan.memory.peak().peak.bytes);
  CHECK(answer.memory->peak().peak.items() == plan.memory.peak().peak.items());
  CHECK(answer.step_flops == plan.step.forward + plan.step.backward);
  CHECK(answer.refusal == "");
  CHECK(answer.problem == "");
}

TEST_CASE("start plan: what is refused begins with the place where the user wrote it, if a user did") {
  LoadedConfig loaded = test::tiny("out");
  loaded.config.policies.checkpoint.enabled = policies::Enabled::on;
  loaded.config.policies.checkpoint.targets = {"block.*"};
  const std::string refusal = asked(loaded, "cpu").refusal;
  CHECK_THAT(refusal, Catch::StartsWith("policies.checkpoint.targets"));
  loaded.locations["policies.checkpoint.targets"] = "a.toml:3:11";
  CHECK(asked(loaded, "cpu").refusal == "a.toml:3:11: " + refusal);
}

TEST_CASE("start plan: so does what a rule refuses, which the run's own reader let pass") {
  LoadedConfig loaded = test::tiny("out");
  loaded.config.data.batch = 7;
  loaded.config.train.accumulate = 3;
  const std::string refusal = "train.accumulate = 3 does not divide data.batch = 7";
  CHECK_THAT(asked(loaded, "cpu").refusal, Catch::StartsWith("the run's configuration: " + refusal));
  loaded.locations["train.accumulate"] = "a.toml:9:14";
  CHECK_THAT(asked(loaded, "cpu").refusal, Catch::StartsWith("a.toml:9:14: " + refusal));
}

TEST_CASE("start plan: that the machine is too small is data") {
  const StartPlan answer = read_start_plan(R"({"problem": "why", "machine_too_small": true})", "answer");
  CHECK_FALSE(answer.memory);
  CHECK(answer.problem == "why");
  CHECK(answer.machine_too_small);
}

TEST_CASE("runs: a machine that is too small for the plan of a run cannot hold the run") {
  const bool too_small = GENERATE(true, false);
  test::World world;
  const auto answer = [&](const LoadedConfig&, c10::Device) {
    StartPlan plan;
    plan.problem = "this machine cannot hold the plan itself: no memory";
    plan.machine_too_small = too_small;
    return plan;
  };
  const LoadedConfig loaded = test::tiny("out");
  const auto run = [&] {
    run_training(loaded, at::kCPU, {}, test::images_of(loaded, world.data),
                 {world.files, world.clock, world.listener, world.stop, answer});
  };
  if (too_small) {
    CHECK_THROWS_WITH(run(), Catch::StartsWith("this machine cannot hold the plan itself: no memory, so it "
                                               "cannot hold the run; use a smaller model"));
  } else {
    run();
    CHECK(world.listener.heard("not planned: this machine cannot hold the plan itself: no memory"));
  }
}
