// A run whose configuration says policies.checkpoint.keep = "auto": it adopts its plan's choice, saves that,
// and is resumed with it.
#include <utility>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/runs/image_run.h"
#include "support/runs/run_world.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/plan/plan.h"
#include "toolkit/report/placement.h"

using namespace dtk;
using Paths = std::vector<std::string>;

namespace {

constexpr int64_t kBudget = 1'000'000'000;

LoadedConfig automatic() {
  LoadedConfig loaded = test::tiny("runs/auto");
  loaded.config.policies.checkpoint.keep = policies::KeepWord::automatic;
  loaded.config.memory.budget = ByteSize{kBudget};
  return loaded;
}

/// Of a plan that was made elsewhere: it recomputes `paths`.
StartPlan plan_with(const Paths& paths) {
  StartPlan plan;
  plan.placement = CheckpointPlacement{paths, {}, 2, 7, 14, 1000, kBudget, 3};
  plan.memory = MemoryReport{};
  plan.memory->device = c10::kCPU;
  plan.memory->phases = {{"backward", {}}};
  return plan;
}

/// A world in which runs are planned.
struct PlannedWorld : test::World {
  std::function<StartPlan(const LoadedConfig&)> plan;
  std::vector<LoadedConfig> asked;

  RunResult run(const LoadedConfig& loaded, const std::string& resume = "") {
    const auto from =
        resume.empty() ? std::filesystem::path() : find_checkpoint(files, resume, loaded.config.train.out);
    const auto asking = [this](const LoadedConfig& one, c10::Device) {
      asked.push_back(one);
      return plan(one);
    };
    return run_training(loaded, at::kCPU, from, test::images_of(loaded, data),
                        {files, clock, listener, stop, asking});
  }
  std::string saved() { return files.read("runs/auto/config.toml"); }
};

const policies::PolicyReport& checkpoint_of(const RunResult& result) {
  for (const policies::PolicyReport& report : result.policies) {
    if (report.policy == "checkpoint") return report;
  }
  throw std::out_of_range("no report of the checkpoint policy");
}

}  // namespace

TEST_CASE("a run with keep = auto trains by its plan's choice, and saves it with its origin") {
  PlannedWorld world;
  world.plan = [](const LoadedConfig&) { return plan_with({"blocks.0"}); };
  const RunResult result = world.run(automatic());
  REQUIRE(world.asked.size() == 1);
  CHECK(placement_is_open(world.asked[0].config));
  CHECK(checkpoint_of(result).reason == "recomputes 1 module in 1 segment, blocks.0");
  CHECK(world.listener.heard(placement_text(*plan_with({"blocks.0"}).placement)));
  const std::string chosen = "  # chosen by keep = auto under memory.budget = 1000000000\n";
  CHECK_THAT(world.saved(), Catch::Contains("\ntargets = [\"blocks.0\"]" + chosen) &&
                                Catch::Contains("\nkeep = \"block\"" + chosen));
  const LoadedConfig again = parse_config(world.saved(), "config.toml", {});
  CHECK(again.config.policies.checkpoint.targets == Paths{"blocks.0"});
  CHECK_FALSE(placement_is_open(again.config));
}

TEST_CASE("a run with keep = auto of which everything fits keeps all") {
  PlannedWorld world;
  world.plan = [](const LoadedConfig&) { return plan_with({}); };
  LoadedConfig loaded = automatic();
  loaded.config.policies.checkpoint.enabled = policies::Enabled::on;
  const RunResult result = world.run(loaded);
  CHECK(checkpoint_of(result).reason == "keep = \"all\": every tensor is kept");
  CHECK_THAT(world.saved(), Catch::Contains("\nkeep = \"all\"  # chosen"));
}

TEST_CASE("a resumed run has the choice that its checkpoint has, and plans that") {
  PlannedWorld world;
  world.plan = [](const LoadedConfig&) { return plan_with({"blocks.1"}); };
  world.run(automatic());
  world.plan = [](const LoadedConfig&) {
    StartPlan plan = plan_with({});
    plan.placement.reset();
    return plan;
  };
  LoadedConfig longer = automatic();
  longer.config.train.steps = 24;
  const RunResult result = world.run(longer, "latest");
  CHECK(result.trained_steps == 4);
  REQUIRE(world.asked.size() == 2);
  CHECK(world.asked[1].config.policies.checkpoint.targets == Paths{"blocks.1"});
  CHECK(world.asked[1].config.policies.checkpoint.keep == policies::KeepWord::block);
  CHECK(text_of(world.asked[1].origins.at("policies.checkpoint.targets")) == "the checkpoint's");
  CHECK(checkpoint_of(result).reason == "recomputes 1 module in 1 segment, blocks.1");
}

TEST_CASE("a precision that is open is measured with the first plan's choice, and decides between them") {
  PlannedWorld world;
  world.plan = [](const LoadedConfig& one) {
    return plan_with(
        {one.config.policies.precision.cpu == policies::CpuPrecision::fp32 ? "blocks.0" : "blocks.1"});
  };
  LoadedConfig loaded = automatic();
  loaded.config.policies.precision.cpu = policies::CpuPrecision::probe;
  world.run(loaded);
  REQUIRE(world.asked.size() == 2);
  const LoadedConfig saved = parse_config(world.saved(), "config.toml", {});
  const bool exact = saved.config.policies.precision.cpu == policies::CpuPrecision::fp32;
  CHECK(saved.config.policies.checkpoint.targets == Paths{exact ? "blocks.0" : "blocks.1"});
}

TEST_CASE("of two precisions' choices, one of which keeps all, nothing of the other is left") {
  const bool fp32_keeps_all = GENERATE(true, false);
  PlannedWorld world;
  world.plan = [&](const LoadedConfig& one) {
    const bool all = (one.config.policies.precision.cpu == policies::CpuPrecision::fp32) == fp32_keeps_all;
    return plan_with(all ? Paths{} : Paths{"blocks.1"});
  };
  LoadedConfig loaded = automatic();
  loaded.config.policies.precision.cpu = policies::CpuPrecision::probe;
  loaded.config.policies.checkpoint.enabled = policies::Enabled::on;
  const Paths written = loaded.config.policies.checkpoint.targets;
  world.run(loaded);
  const policies::PolicyOptions saved = parse_config(world.saved(), "config.toml", {}).config.policies;
  const bool all = (saved.precision.cpu == policies::CpuPrecision::fp32) == fp32_keeps_all;
  CAPTURE(all);
  CHECK(saved.checkpoint.keep == (all ? policies::KeepWord::all : policies::KeepWord::block));
  CHECK(saved.checkpoint.targets == (all ? written : Paths{"blocks.1"}));
  CHECK(saved.checkpoint.enabled == (all ? policies::Enabled::by_default : policies::Enabled::on));
}

TEST_CASE("a run with keep = auto is refused without a plan, which says why there is none") {
  test::World unplanned;
  LoadedConfig loaded = automatic();
  CHECK(
      test::error_text<ConfigError>([&] { unplanned.run(loaded); }) ==
      "policies.checkpoint.keep = \"auto\" is chosen by the run's plan, and there is none: nobody plans this "
      "run; set policies.checkpoint.keep = \"block\", or targets of your own");
  loaded.locations["policies.checkpoint.keep"] = "a.toml:3:4";
  PlannedWorld world;
  world.plan = [](const LoadedConfig&) {
    StartPlan plan;
    plan.problem = "cannot start dit-plan";
    return plan;
  };
  CHECK(test::error_text<ConfigError>([&] { world.run(loaded); }) ==
        "a.toml:3:4: policies.checkpoint.keep = \"auto\" is chosen by the run's plan, and there is none: "
        "cannot "
        "start dit-plan; set policies.checkpoint.keep = \"block\", or targets of your own");
  CHECK_FALSE(world.files.exists("runs/auto"));
}
