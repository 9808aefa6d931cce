// What dit-train and dit-plan make of a policy that a program brings along.
#include <nlohmann/json.hpp>

#include "integration/own_policy/rounded.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/plans/plan_accuracy.h"
#include "support/runs/run_world.h"
#include "toolkit/commands/plan.h"
#include "toolkit/core/errors.h"
#include "toolkit/plan/plan.h"
#include "toolkit/train/model_family.h"

namespace {

using namespace dtk;
using Json = nlohmann::json;
using own::RoundedOptions;

struct Registration {
  Registration() {
    policies::register_policy(kind);
    twice = test::error_text<std::logic_error>([&] { policies::register_policy(kind); });
  }
  const own::RoundedKind kind;
  std::string twice;
} const registration;

const std::string job = R"([train]
out = "run"
steps = 12
threads = 1
log_every = 1
[data]
kind = "synthetic"
samples = 60
batch = 8
[model]
depth = 2
hidden = 32
heads = 2
patch = 4
image_size = 16
channels = 1
classes = 4
learn_sigma = false
[sample]
steps = 3
per_class = 1
[policies.precision]
cpu = "fp32"
[policies.rounded]
)";

LoadedConfig configured(const std::string& rounded) {
  return parse_config(job + rounded + "\n", "job.toml", {});
}

std::string refusal(const std::string& rounded) {
  return test::error_text<ConfigError>([&] { configured(rounded); });
}

RunResult run(test::World& world, const LoadedConfig& loaded, const std::string& resume = "") {
  const auto from = resume.empty() ? std::filesystem::path()
                                   : find_checkpoint(world.files, resume, loaded.config.train.out);
  return run_training(loaded, at::kCPU, from,
                      [&](const DataIdentity* before, const OpeningProgress& progress) {
                        return family_of(loaded.config).open_data(loaded, before, progress);
                      },
                      {world.files, world.clock, world.listener, world.stop});
}

std::string planned(const std::string& rounded, bool PlanArguments::*asked, bool value = true,
                    bool json = false) {
  test::MemoryFileSystem files;
  const std::string text = job + rounded + "\n";
  files.create("job.toml")->write(text.data(), text.size());
  PlanArguments arguments;
  arguments.*asked = value;
  arguments.config = "job.toml";
  arguments.device = PlannedDevice::cpu;
  arguments.json = json;
  std::string printed;
  run_plan(arguments, files, [&](const std::string& part) { printed += part; });
  return printed;
}

int64_t peak(const Plan& plan) {
  return plan.memory.peak().peak.bytes;
}

}  // namespace

TEST_CASE("own policy: its table is read, printed and compared as all others") {
  const LoadedConfig loaded = configured("enabled = true\nmin_bytes = 2048");
  CHECK(loaded.config.policies.own.of<RoundedOptions>().min_bytes == 2048);
  CHECK(text_of(loaded.origins.at("policies.rounded.min_bytes")) == "job.toml:26");
  CHECK_THAT(print_config(loaded),
             Catch::Contains("\n[policies.rounded]\nenabled = true  # job.toml:25\n"
                             "min_bytes = 2048  # job.toml:26\nevery = 1  # default\n"));
  CHECK(parse_config(print_config(loaded), "again.toml", {}).config == loaded.config);
  const LoadedConfig other = configured("enabled = true\nmin_bytes = 4096");
  CHECK_FALSE(other.config == loaded.config);
  CHECK(changes_on_resume(3, loaded.config, other.config) ==
        std::vector<ConfigChange>{{3, "policies.rounded.min_bytes = 4096 (was 2048)", true}});
}

TEST_CASE("own policy: what is wrong with its table is said with line and column") {
  CHECK(refusal("enabled = true\nmin_byte = 1") ==
        "job.toml:26:1: unknown key policies.rounded.min_byte; did you mean policies.rounded.min_bytes?");
  CHECK(refusal("min_bytes = -1") ==
        "job.toml:25:13: policies.rounded.min_bytes = -1 is out of range; allowed: [0, inf)");
  CHECK(refusal("[policies.round]\n") ==
        "job.toml:25:11: unknown table [policies.round]; did you mean [policies.rounded]?");
}

TEST_CASE("own policy: what it refuses has the place of its key") {
  test::World world;
  CHECK(test::error_text<ConfigError>(
            [&] { run(world, configured("enabled = true\nmin_bytes = 100000000")); }) ==
        "job.toml:26:13: policies.rounded.min_bytes = 100000000 is more than any saved tensor has; lower it");
}

TEST_CASE("own policy: a run reports it, resumes with it, and one key switches it off") {
  test::World world;
  LoadedConfig loaded = configured("enabled = true");
  loaded.config.schedule.kind = ScheduleKind::constant;  // a cosine's rate depends on the number of steps
  const auto line_of = [](const RunResult& result) {
    for (const policies::PolicyReport& report : result.policies)
      if (report.policy == "rounded") return report;
    return policies::PolicyReport();
  };
  const RunResult on = run(world, loaded);
  CHECK(line_of(on).active);
  CHECK(line_of(on).reason == "what is saved in fp32 waits in bf16, in each 1. step");
  CHECK(world.listener.heard("policy rounded: on, what is saved in fp32 waits in bf16, in each 1. step"));
  CHECK_THAT(world.files.read("run/memory.json"), Catch::Contains("\"rounded\""));
  CHECK_THAT(world.files.read("run/report.html"), Catch::Contains("waits in bf16, in each 1. step"));
  REQUIRE(on.savings.back().report.policy == "rounded");
  CHECK(on.savings.back().bytes > 0);
  loaded.config.train.steps = 14;
  const RunResult resumed = run(world, loaded, "latest");
  CHECK(resumed.step == 14);
  CHECK(resumed.trained_steps == 2);
  test::World whole;
  run(whole, loaded);
  for (const char* const file : {"model", "optimizer", "ema"}) {
    const std::string path = std::string("run/checkpoints/step-00000014/") + file + ".safetensors";
    INFO(path);
    CHECK(world.files.read(path) == whole.files.read(path));
  }
  test::World other;
  const RunResult off = run(other, configured("enabled = false"));
  CHECK_FALSE(line_of(off).active);
  CHECK(line_of(off).reason == "switched off: policies.rounded.enabled = false");
  CHECK(off.memory->peak().peak.bytes > on.memory->peak().peak.bytes);
}

TEST_CASE(
    "own policy: dit-plan's table has a row with and without it beside each combination of the others") {
  const std::vector<PlanRow> rows = plan_table(configured(""), at::kCPU);
  REQUIRE(rows.size() == 64);
  for (const PlanRow& row : rows) CHECK(row.on.size() == 6);
  const auto row_of = [&](const policies::PolicySwitches& on) -> const PlanRow& {
    return *std::find_if(rows.begin(), rows.end(), [&](const PlanRow& row) { return row.on == on; });
  };
  const PlanRow& off = row_of({false, true, false, true, false, false});
  const PlanRow& on = row_of({false, true, false, true, false, true});
  CHECK(peak(on.plan) < peak(off.plan));
  for (const PlanRow& row : {off, on, row_of({true, true, true, true, true, true})}) {
    const PlanAccuracy accuracy = plan_accuracy(row.plan.loaded);
    CHECK(accuracy.differences.empty());
    CHECK(accuracy.storages > 0);
  }
}

TEST_CASE("own policy: dit-plan names it in its texts and its JSON") {
  const std::string table = planned("", &PlanArguments::table);
  CHECK_THAT(table, Catch::Contains("all 64 combinations of the policies"));
  CHECK_THAT(table, Catch::Contains("checkpoint rounded peak, MiB"));
  const std::string why = planned("", &PlanArguments::explain);
  CHECK_THAT(why, Catch::Contains("\n  rounded    off  switched on, the peak falls by "));
  CHECK_THAT(why, Catch::Contains("all activations kept; saved tensors as they are\n"));
  const Json json = Json::parse(planned("", &PlanArguments::table, true, true));
  CHECK(json.at(0).at("policies").at(5).at("name") == "rounded");
}

TEST_CASE("own policy: a long period of it is planned as a short one") {
  const std::string text = planned("enabled = true\nevery = 500", &PlanArguments::fold);
  CHECK_THAT(text, Catch::Contains("996 of the steady steps"));
  const auto whole = [](const std::string& rounded) {
    return test::error_text<Error>([&] { planned(rounded, &PlanArguments::fold, false); });
  };
  CHECK(whole("every = 5000") == "(nothing was thrown)");  // it is switched off
  CHECK(whole("enabled = true\nevery = 5000") ==
        "the policies repeat their work after 5000 steps; a plan that leaves none out runs at most 1000 of "
        "them, "
        "twice; plan without --no-fold, or with --set policies.rounded.every=1000 or less");
  CHECK_THAT(whole("enabled = true\nevery = 997\n[policies.ema]\nevery = 3"),
             Catch::EndsWith("or with other values of policies.ema.every = 3, policies.rounded.every = 997, "
                             "whose common multiple it is"));
}

TEST_CASE("own policy: registered twice or too late is an error") {
  CHECK(registration.twice == "two policies are called rounded");
  CHECK(test::error_text<std::logic_error>([] { policies::register_policy(registration.kind); }) ==
        "the policy rounded is registered after the list was read");
}
