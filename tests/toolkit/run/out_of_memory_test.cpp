// A run that does not fit: exit code 3, what it says, and what it leaves in its folder.
#include "toolkit/run/out_of_memory.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/runs/run_world.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/run/run.h"

using namespace dtk;
using policies::Enabled;
using test::tiny;
using test::World;
using Json = nlohmann::json;

namespace {

LoadedConfig within(int64_t budget, const std::string& out = "out") {
  LoadedConfig loaded = tiny(out);
  loaded.config.memory.budget = ByteSize{budget};
  dit::options_of(loaded.config).grid.per_class = 0;
  return loaded;
}

std::string refused(World& world, const LoadedConfig& loaded, const std::string& resume = "") {
  try {
    world.run(loaded, resume);
  } catch (const Error& error) {
    CHECK(error.code == ExitCode::memory);
    return error.what();
  }
  return "(nothing was thrown)";
}

std::vector<std::string> events(World& world) {
  std::vector<std::string> names;
  std::istringstream lines(world.files.read("out/log.jsonl"));
  for (std::string line; std::getline(lines, line);) names.push_back(Json::parse(line)["event"]);
  return names;
}

Json memory(World& world) {
  return Json::parse(world.files.read("out/memory.json"));
}

// Of tiny(): what its own memory.json says of a run without a budget.
struct State {
  int64_t parameters = 0, trained = 0, total = 0;
};

State state_of_tiny() {
  World world;
  world.run(within(INT64_MAX));
  const Json phases = memory(world)["phases"];
  State state;
  for (const Json& phase : phases) {
    if (phase["name"] != "optimizer") continue;
    const Json& held = phase["categories"];
    state.parameters = held["parameters"], state.trained = held["gradients"];
    state.total = state.parameters + 4 * state.trained;  // gradients, two moments and the EMA
  }
  return state;
}

constexpr char kReadable[] =
    "the state alone takes 298.1 KiB (parameters 59.8 KiB, gradients 59.6 KiB, both Adam moments 119.1 KiB, "
    "EMA "
    "59.6 KiB), whatever the batch: ";

}  // namespace

TEST_CASE("out of memory: a step says phase, module path and what would help, and leaves its figures") {
  World world;
  const State state = state_of_tiny();
  const int64_t budget = state.total + 2000;  // no step of two samples takes so little
  const std::string message = refused(world, within(budget));
  CHECK_THAT(message, Catch::StartsWith("memory budget of " + std::to_string(budget) + " bytes exceeded: "));
  CHECK_THAT(message, Catch::Contains(" in phase first_step at "));
  CHECK_THAT(message,
             Catch::EndsWith("; the state takes 298.1 KiB, the rest is a step's: lower data.batch or raise "
                             "train.accumulate (a pass takes 4 samples at a time), raise memory.budget "
                             "(dit-plan says what the whole run takes) or use a smaller model"));
  CHECK(events(world) == std::vector<std::string>{"start", "out_of_memory"});
  const Json json = memory(world);
  const Json& what = json["refused"];
  CHECK(what["phase"] == "first_step");
  CHECK_FALSE(what["module_path"].get<std::string>().empty());
  CHECK(what["alive_bytes"].get<int64_t>() + what["bytes"].get<int64_t>() > budget);
  int64_t held = 0;
  for (const auto& [category, bytes] : what["categories"].items()) held += bytes.get<int64_t>();
  CHECK(held == what["alive_bytes"]);
  CHECK(what["alive_bytes"].get<int64_t>() <= budget);
  CHECK(json["phases"].size() >= 2);
  const std::string page = world.files.read("out/report.html");
  CHECK_THAT(page, Catch::Contains("out of memory after step 0, in phase first_step at "));
  CHECK_THAT(page, Catch::Contains("<p class=\"note\">It did not fit: "));
  // The next start takes the folder over, and nothing of the refused one is left.
  world.run(within(10'000'000));
  CHECK(world.listener.heard("out holds an earlier start that came to no step; this run takes its place"));
  CHECK_FALSE(memory(world).contains("refused"));
}

TEST_CASE("out of memory: the advice names what is off, and after a checkpoint where to go on") {
  World world;
  LoadedConfig loaded = within(10'000'000);
  loaded.config.policies.checkpoint.enabled = Enabled::off;
  loaded.config.policies.attention.enabled = Enabled::off;
  loaded.config.data.batch = 2;
  world.run(loaded);
  loaded.config.memory.budget = ByteSize{state_of_tiny().total + 2000};
  loaded.config.train.out = "small";
  CHECK_THAT(
      refused(world, loaded),
      Catch::EndsWith("the rest is a step's: switch on policies.checkpoint, switch on policies.attention, "
                      "raise memory.budget (dit-plan says what the whole run takes) or use a smaller model"));
  // Resumed, the model and the batch are the checkpoint's; what the first life left stays.
  loaded.config.train.out = "out";
  loaded.config.train.steps = 30;
  const std::string before = world.files.read("out/memory.json");
  const std::string message = refused(world, loaded, "latest");
  CHECK_THAT(message, Catch::Contains("; last checkpoint: out/checkpoints/step-00000020; the state takes "));
  CHECK_THAT(message,
             Catch::EndsWith("the rest is a step's: switch on policies.checkpoint or raise memory.budget "
                             "(dit-plan says what the whole run takes)"));
  CHECK(world.files.read("out/memory.json") != before);  // it trained, or tried to
  CHECK(events(world).back() == "out_of_memory");
}

TEST_CASE("out of memory: of batches and passes only what is planned to fit is advised") {
  LoadedConfig loaded = tiny("out");
  loaded.config.data.batch = 8;
  loaded.config.train.accumulate = 2;
  const auto advice = [&](const FewerSamples& fewer, std::optional<int64_t> accumulate = std::nullopt) {
    Shortage shortage;
    shortage.limit = 10'000'000;
    shortage.fewer = fewer;
    shortage.accumulate = accumulate;
    return out_of_memory_advice(loaded.config, at::kCPU, shortage);
  };
  CHECK_THAT(advice({}),
             Catch::Contains("lower data.batch or raise train.accumulate (a pass takes 4 samples "));
  CHECK_THAT(advice({.is_known = true}), !Catch::Contains("data.batch") && !Catch::Contains("accumulate"));
  CHECK_THAT(advice({.is_known = true, .most = StepSize{6, 2}}),
             Catch::Contains("set data.batch = 6, which by its plan fits (a pass"));
  CHECK_THAT(
      advice({.is_known = true, .most = StepSize{6, 2}}, 4),
      Catch::Contains("set data.batch = 6, which by its plan fits, or set train.accumulate = 4, which by "
                      "its plan fits and keeps the batch (a pass"));
  CHECK_THAT(advice({.is_known = true, .most = StepSize{3, 1}}),
             Catch::Contains("set data.batch = 3 with train.accumulate = 1, which by its plan fits (a pass"));
  loaded.config.train.accumulate = 8;  // a sample a pass
  CHECK_THAT(advice({}), !Catch::Contains("data.batch"));
  CHECK_THAT(advice({.is_known = true, .most = StepSize{1, 1}}), Catch::Contains("set data.batch = 1 with "));
}

TEST_CASE("out of memory: a state that does not fit is no matter of the batch") {
  World world;
  const State state = state_of_tiny();
  const std::string more = "raise memory.budget (dit-plan says what the whole run takes)";
  const std::string smaller = "use a smaller model (model.name, or model.depth and model.hidden)";
  for (const int64_t budget :
       {state.parameters - 1, state.parameters + 2 * state.trained, state.total - state.trained - 1}) {
    CAPTURE(budget);
    const std::string message = refused(world, within(budget));
    CHECK_THAT(message, Catch::Contains(" in phase build with "));
    CHECK_THAT(message, Catch::Contains("; " + std::string(kReadable) + more + " or " + smaller));
    CHECK(events(world) == std::vector<std::string>{"start", "out_of_memory"});
    const Json json = memory(world);
    CHECK(json["refused"]["phase"] == "build");
    CHECK(json["peak"]["phase"] == "build");
    CHECK(json["refused"]["alive_bytes"].get<int64_t>() <= budget);
    CHECK_THAT(world.files.read("out/report.html"),
               Catch::Contains("out of memory after step 0, in phase build"));
  }
  // Without its EMA it would do.
  CHECK_THAT(refused(world, within(state.total - 1)),
             Catch::EndsWith(kReadable + more + ", " + smaller +
                             " or do without the EMA: set policies.ema.enabled = false"));
}

TEST_CASE("out of memory: a budget without a unit is explained") {
  World world;
  const std::string message = refused(world, within(2));
  CHECK_THAT(message, Catch::StartsWith("memory budget of 2 bytes exceeded: "));
  CHECK_THAT(message,
             Catch::Contains(" asked for by model in phase build with 0 bytes alive; the state alone"));
  CHECK_THAT(message,
             Catch::EndsWith("; a number alone is bytes: larger sizes have a unit, such as \"2GB\" or "
                             "\"1.5 GiB\""));
  CHECK(memory(world)["refused"]["alive_bytes"] == 0);
}

TEST_CASE("out of memory: a resumed run that cannot be built leaves the folder as it was") {
  World world;
  world.run(within(10'000'000));
  const std::string before = world.files.read("out/memory.json"), log = world.files.read("out/log.jsonl");
  LoadedConfig loaded = within(1000);
  loaded.config.train.steps = 30;
  CHECK_THAT(
      refused(world, loaded, "latest"),
      Catch::Contains("whatever the batch: raise memory.budget (dit-plan says what the whole run takes); "));
  CHECK(world.files.read("out/memory.json") == before);
  CHECK(world.files.read("out/log.jsonl") == log);
}
