// memory.on_out_of_memory = "escalate": a run whose room shrinks goes on with a choice that fits, as if it
// had had it from the start.
#include "toolkit/run/escalation.h"

#include <dtk/policies/memory_ledger.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/runs/run_world.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/plan/start_plan.h"
#include "toolkit/train/save_load.h"

namespace dtk {
namespace {

using Json = nlohmann::json;
using policies::Enabled;

StartPlan plan_of(const LoadedConfig& loaded) {
  return read_start_plan(start_plan_json(start_plan_request_json({loaded, "cpu"})), "plan");
}

LoadedConfig escalating(const std::string& out) {
  LoadedConfig loaded = test::tiny(out);
  RunConfig& config = loaded.config;
  config.memory.on_out_of_memory = OnOutOfMemory::escalate;
  config.policies.checkpoint.enabled = Enabled::off;
  config.policies.checkpoint.offload_min_bytes = {0};
  config.train.steps = 12;
  config.train.log_every = 1;
  config.train.keep_checkpoints = 20;
  // Activations are most of the peak.
  config.data.batch = 32;
  dit::options_of(config).model.depth = 4;
  dit::options_of(config).model.patch = 2;
  dit::options_of(config).model.mlp_dropout = 0;
  dit::options_of(config).grid.per_class = 0;
  return loaded;
}

// Those of policies, then the parts with all of them.
std::vector<RunConfig> all_choices(const RunConfig& config, c10::Device device) {
  std::vector<RunConfig> choices = tighter_policies(config, device);
  const std::vector<RunConfig> parts = smaller_parts(choices.empty() ? config : choices.back());
  choices.insert(choices.end(), parts.begin(), parts.end());
  return choices;
}

using Rooms = std::map<int64_t, int64_t>;  // bytes, from the step on

/// Runs whose room shrinks; what is planned was planned before.
struct ShrinkingWorld : test::World {
  explicit ShrinkingWorld(const LoadedConfig& loaded) {
    for (const RunConfig& choice : all_choices(loaded.config, at::kCPU)) {
      LoadedConfig one = loaded;
      one.config = choice;
      choices.push_back(one);
      planned.push_back(plan_of(one));
    }
    now = plan_of(loaded);
  }

  RunResult run(const LoadedConfig& loaded, const Rooms& rooms, const std::string& resume = "",
                FileSystem* other = nullptr) {
    const policies::MemoryBudgetGuard restored(policies::cpu_accounts(), policies::MemoryAccounts::kNoLimit);
    FileSystem& disk = other != nullptr ? *other : files;
    bool is_shrunk = false;
    const auto stop_requested = [&] {
      if (is_shrunk && stops_then) return true;
      const auto room = rooms.find(listener.last.step + 1);
      if (room != rooms.end()) policies::cpu_accounts().set_limit(room->second);
      is_shrunk = is_shrunk || room != rooms.end();
      return false;
    };
    const auto plan = [&](const LoadedConfig& one, c10::Device) -> StartPlan {
      CHECK_FALSE(one.config.train.allow_thread_change);  // no new run may have it
      if (answer) return answer(one);
      for (size_t i = 0; i < choices.size(); ++i) {
        RunConfig config = one.config;
        config.memory.budget.reset();
        config.train.steps = choices[i].config.train.steps;
        config.train.out = choices[i].config.train.out;
        if (config == choices[i].config) return planned[i];
      }
      return now;
    };
    const auto from =
        resume.empty() ? std::filesystem::path() : find_checkpoint(disk, resume, loaded.config.train.out);
    return run_training(loaded, at::kCPU, from, test::images_of(loaded, data),
                        {disk, clock, listener, stop_requested, plan});
  }

  int64_t bytes(size_t choice) const { return *planned_bytes(planned[choice]); }

  std::vector<Json> log(const std::string& out, const std::string& event) {
    std::vector<Json> found;
    std::istringstream lines(files.read(out + "/log.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line);
      if (json["event"] == event) found.push_back(json);
    }
    return found;
  }

  std::vector<LoadedConfig> choices;
  std::vector<StartPlan> planned;
  StartPlan now;
  std::function<StartPlan(const LoadedConfig&)> answer;  // in place of these plans
  bool stops_then = false;                               // once the room has shrunk
};

/// Of a plan that was made elsewhere.
StartPlan plan_of_bytes(int64_t bytes) {
  StartPlan plan;
  plan.memory = MemoryReport{};
  plan.memory->device = c10::kCPU;
  plan.memory->phases = {{"backward", {}}};
  plan.memory->phases[0].peak.bytes = bytes;
  return plan;
}

// Of the last step, by file.
const std::vector<std::string> kState = {"model.safetensors", "optimizer.safetensors", "ema.safetensors"};

std::string last(const std::string& out, const std::string& file) {
  return out + "/checkpoints/step-00000012/" + file;
}

}  // namespace

TEST_CASE("escalation: what is left to choose, the cheapest first") {
  const LoadedConfig loaded = escalating("out");
  std::vector<std::string> texts;
  for (const RunConfig& choice : all_choices(loaded.config, at::kCPU)) {
    std::string text;
    for (const ConfigDifference& one : differences(loaded.config, choice))
      text += one.key.substr(one.key.rfind('.') + 1) + "=" + one.b + " ";
    texts.push_back(text);
  }
  CHECK(texts == std::vector<std::string>{"enabled=\"default\" ", "enabled=\"default\" keep=[\"offload\"] ",
                                          "split=2 enabled=\"default\" keep=[\"offload\"] ",
                                          "split=4 enabled=\"default\" keep=[\"offload\"] ",
                                          "split=8 enabled=\"default\" keep=[\"offload\"] ",
                                          "split=16 enabled=\"default\" keep=[\"offload\"] "});
  RunConfig all = all_choices(loaded.config, at::kCPU).back();
  CHECK(all_choices(all, at::kCPU).empty());
  // On a device an average beside the weights goes to host memory first.
  all.policies.ema.device = policies::EmaDevice::same;
  CHECK(all_choices(all, at::kCPU).empty());
  const std::vector<RunConfig> moved = all_choices(all, c10::Device(at::kCUDA, 0));
  REQUIRE(moved.size() == 1);
  CHECK(moved[0].policies.ema.device == policies::EmaDevice::cpu);
}

TEST_CASE("escalation: the run goes on with the first choice that fits, as if it had it from the start") {
  const LoadedConfig loaded = escalating("out");
  const size_t chosen = GENERATE(size_t{0}, size_t{1}, size_t{2}, size_t{3});
  const int64_t at_step = GENERATE(1, 6, 9);  // a new run's first; within; where a checkpoint was just saved
  CAPTURE(chosen, at_step);
  ShrinkingWorld world(loaded);
  const int64_t room = world.bytes(chosen);
  // The baseline needs more, and so does each choice before.
  REQUIRE(*planned_bytes(world.now) > room);
  for (size_t i = 0; i < chosen; ++i) REQUIRE(world.bytes(i) > room);

  const RunResult result = world.run(loaded, {{at_step, room}});
  CHECK(result.step == 12);
  CHECK(result.trained_steps == 12);
  CHECK(result.planned->peak().peak.bytes == room);
  CHECK(result.memory->peak().peak.bytes == room);

  LoadedConfig reference = world.choices[chosen];
  reference.config.train.out = "reference";
  ShrinkingWorld other(loaded);
  const RunResult expected = other.run(reference, {});
  CHECK(expected.memory->peak().peak.bytes == room);
  const bool same_arithmetic = chosen < 2 || at_step == 1;
  for (const std::string& file : kState) {
    INFO(file);
    const bool equal = world.files.read(last("out", file)) == other.files.read(last("reference", file));
    if (same_arithmetic) CHECK(equal);
  }
  const auto losses = [](ShrinkingWorld& one, const std::string& out) {
    std::map<int64_t, double> all;
    for (const Json& line : one.log(out, "step")) all[line["step"]] = line["loss"];
    return all;
  };
  const auto here = losses(world, "out"), there = losses(other, "reference");
  REQUIRE(here.size() == 12);
  REQUIRE(there.size() == 12);
  for (const auto& [step, loss] : here) {
    CAPTURE(step);
    if (same_arithmetic) CHECK(loss == there.at(step));
    CHECK(loss == Approx(there.at(step)).epsilon(1e-6));
  }

  // What is said of it.
  const std::vector<Json> events = world.log("out", "escalated");
  REQUIRE(events.size() == 1);
  const std::string set = std::vector<std::string>{
      "policies.checkpoint.enabled = \"default\"",
      "policies.checkpoint.enabled = \"default\", policies.checkpoint.keep = [\"offload\"]",
      "memory.split = 2, policies.checkpoint.enabled = \"default\", policies.checkpoint.keep = [\"offload\"]",
      "memory.split = 4, policies.checkpoint.enabled = \"default\", policies.checkpoint.keep = [\"offload\"]",
  }[chosen];
  CHECK(events[0]["set"] == set);
  CHECK(events[0]["step"] == at_step - 1);
  CHECK(events[0]["planned_bytes"] == room);
  CHECK(events[0]["room_bytes"] == room);
  CHECK(events[0]["alive_bytes"].get<int64_t>() + events[0]["bytes"].get<int64_t>() > room);
  CHECK(Json::parse(world.files.read("out/memory.json"))["escalations"] ==
        Json::parse(R"([{"step": )" + std::to_string(at_step - 1) + R"(, "set": )" + Json(set).dump() +
                    R"(, "planned_bytes": )" + std::to_string(room) + R"(, "room_bytes": )" +
                    std::to_string(room) + "}]"));
  CHECK_THAT(world.files.read("out/report.html"),
             Catch::Contains("the run was refused memory and went on with "));
  const auto said = std::find_if(
      world.listener.messages.begin(), world.listener.messages.end(), [&](const std::string& text) {
        return text.starts_with(
            "step " + std::to_string(at_step) +
            " was refused memory and is taken back, nothing of it remains: memory budget");
      });
  REQUIRE(said != world.listener.messages.end());
  CHECK_THAT(*said, Catch::Contains("; the run goes on from out/checkpoints/step-0000000" +
                                    std::to_string(at_step - 1) + " with " + set + " (planned peak " +
                                    std::to_string(room) + " bytes in phase "));
  CHECK_THAT(world.files.read("out/config.toml"), Catch::Contains("enabled = \"default\"  # out of memory: "
                                                                  "after step " +
                                                                  std::to_string(at_step - 1) + "\n"));
}

TEST_CASE("escalation: a resumed run goes on with what was chosen, unless --set says otherwise") {
  const LoadedConfig loaded = escalating("out");
  ShrinkingWorld world(loaded);
  world.run(loaded, {{6, world.bytes(2)}});
  LoadedConfig longer = loaded;  // as the user wrote it
  longer.config.train.steps = 14;
  world.listener.messages.clear();
  world.run(longer, {}, "latest");
  CHECK(
      world.listener.heard("goes on as the run did after it was refused memory: memory.split, "
                           "policies.checkpoint.enabled, policies.checkpoint.keep; --set says otherwise"));
  const LoadedConfig saved = parse_config(world.files.read("out/config.toml"), "config.toml", {});
  CHECK(saved.config.memory.split == 2);
  CHECK(saved.config.policies.checkpoint == world.choices[2].config.policies.checkpoint);
  longer.config.train.steps = 16;
  longer.origins["memory.split"] = {Origin::Source::set};
  world.run(longer, {}, "latest");
  CHECK(parse_config(world.files.read("out/config.toml"), "config.toml", {}).config.memory.split == 1);
  CHECK(world.log("out", "escalated").size() == 1);
}

TEST_CASE("escalation: it gives up with the message of a run that stops, once nothing is left") {
  LoadedConfig loaded = escalating("out");
  ShrinkingWorld world(loaded);
  const int64_t room = world.bytes(world.choices.size() - 1) - 1;
  const auto message = [&](const LoadedConfig& one) {
    world.listener.last = {};
    return test::error_text<Error>([&] { world.run(one, {{6, room}}); });
  };
  const std::string given_up = message(loaded);
  loaded.config.memory.on_out_of_memory = OnOutOfMemory::stop;
  loaded.config.train.out = "other";
  const std::string stopped = message(loaded);
  // Before it come the bytes that are alive, 4 more where a step may be taken back.
  const size_t advice = stopped.find("; the state takes ");
  REQUIRE(advice != std::string::npos);
  CHECK_THAT(given_up, Catch::EndsWith(stopped.substr(advice)));
  CHECK_THAT(given_up, Catch::StartsWith("memory budget of " + std::to_string(room) + " bytes exceeded: "));
  CHECK(std::any_of(world.listener.messages.begin(), world.listener.messages.end(), [&](const auto& text) {
    return text.starts_with("step 6 was refused memory, and no choice fits: the least, with ") &&
           text.find(" is planned to take " + std::to_string(room + 1) + " bytes in phase ") != text.npos;
  }));
  CHECK(world.log("out", "escalated").empty());
  CHECK(world.log("out", "out_of_memory").size() == 1);
  CHECK(world.log("other", "out_of_memory").size() == 1);
}

TEST_CASE("escalation: a choice that is refused or takes no less is not in those after it") {
  LoadedConfig loaded = escalating("out");
  loaded.config.policies.checkpoint.enabled = Enabled::on;
  loaded.config.policies.checkpoint.offload_min_bytes = {1
                                                         << 20};  // nothing is so large: an error, asked for
  ShrinkingWorld world(loaded);
  LoadedConfig split = loaded;
  split.config.memory.split = 2;
  const StartPlan half = plan_of(split);
  world.answer = [&](const LoadedConfig& one) {
    if (one.config.policies.checkpoint.keep.offloads()) return world.planned[0];
    return one.config.memory.split == 2 ? half : world.now;
  };
  REQUIRE_FALSE(world.planned[0].refusal.empty());
  CHECK(world.run(loaded, {{6, *planned_bytes(half)}}).step == 12);
  const std::vector<Json> events = world.log("out", "escalated");
  REQUIRE(events.size() == 1);
  CHECK(events[0]["set"] == "memory.split = 2");
  CHECK(world.log("out", "resume").empty());
}

TEST_CASE("escalation: a run that gives up later has the advice of its own start") {
  const LoadedConfig loaded = escalating("out");
  ShrinkingWorld world(loaded);
  const int64_t lowest = world.bytes(world.choices.size() - 1) - 1;
  const std::string given_up = test::error_text<Error>([&] {
    world.run(loaded, {{4, world.bytes(2)}, {8, lowest}});
  });
  CHECK_THAT(given_up,
             Catch::StartsWith("memory budget of " + std::to_string(lowest) + " bytes exceeded: ") &&
                 Catch::Contains("; last checkpoint: out/checkpoints/step-00000003; ") &&
                 Catch::EndsWith(" or use a smaller model"));
  CHECK(world.log("out", "escalated").size() == 1);
}

TEST_CASE("escalation: a resumed run with another number of threads escalates as any other") {
  LoadedConfig loaded = escalating("out");
  ShrinkingWorld world(loaded);
  loaded.config.train.steps = 3;
  world.run(loaded, {});
  loaded.config.train.steps = 12;
  loaded.config.train.allow_thread_change = true;
  CHECK(world.run(loaded, {{6, world.bytes(1)}}, "latest").trained_steps == 9);
  CHECK(world.log("out", "escalated").size() == 1);
}

TEST_CASE("escalation: keep = auto is chosen anew for the room, and never twice alike") {
  LoadedConfig loaded = escalating("out");
  const std::vector<RunConfig> choices = all_choices(loaded.config, at::kCPU);
  ShrinkingWorld world(loaded);
  loaded.config.memory.budget = ByteSize{1'000'000'000};
  loaded.config.policies.checkpoint.enabled = Enabled::by_default;
  loaded.config.policies.checkpoint.keep = policies::KeepWord::automatic;
  // It is planned too low: blocks.0 alone is never enough.
  std::vector<int64_t> budgets;
  world.answer = [&](const LoadedConfig& one) {
    if (!placement_is_open(one.config)) return StartPlan{std::nullopt, "no plan today"};
    const int64_t budget = one.config.memory.budget->bytes;
    StartPlan plan = plan_of_bytes(budget);
    const bool at_start = budget == 1'000'000'000;
    plan.placement =
        CheckpointPlacement{at_start ? std::vector<std::string>{} : std::vector<std::string>{"blocks.0"},
                            {},
                            4,
                            7,
                            14,
                            budget,
                            budget,
                            3};
    budgets.push_back(budget);
    return plan;
  };
  const int64_t room = world.bytes(1);
  CHECK(world.run(loaded, {{6, room}}).step == 12);
  const std::vector<Json> events = world.log("out", "escalated");
  INFO(Json(events).dump());
  REQUIRE(events.size() == 3);
  CHECK(events[0]["set"] ==
        "policies.checkpoint.targets = [\"blocks.0\"], policies.checkpoint.keep = \"block\"");
  CHECK(events[1]["set"] == "policies.checkpoint.targets = [\"blocks.*\"]");
  CHECK(events[2]["set"] == "policies.checkpoint.keep = [\"offload\"]");
  CHECK(budgets == std::vector<int64_t>{1'000'000'000, room, room - 1});
}

TEST_CASE("escalation: a choice that is refused when it is built ends the run, which says so") {
  const LoadedConfig loaded = escalating("out");
  ShrinkingWorld world(loaded);
  // Room for what is, until the run that goes on is built.
  struct Disk final : test::MemoryFileSystem {
    std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override {
      if (path.string().starts_with("out/config.toml") && ++starts == 2)
        policies::cpu_accounts().set_limit(100'000);
      return MemoryFileSystem::create(path);
    }
    int starts = 0;
  };
  Disk disk;
  const std::string message = test::error_text<Error>([&] {
    world.run(loaded, {{6, world.bytes(0)}}, "", &disk);
  });
  CHECK_THAT(message, Catch::StartsWith("memory budget of 100000 bytes exceeded: ") &&
                          Catch::Contains(
                              "; last checkpoint: out/checkpoints/step-00000005, with "
                              "policies.checkpoint.enabled = \"default\", which a resumed run goes on with "
                              "unless --set says otherwise; the state alone takes "));
  CHECK_THAT(disk.read("out/log.jsonl"), Catch::Contains("\"event\":\"out_of_memory\",\"step\":5"));
  CHECK(policies::cpu_accounts().live_bytes() == 0);
}

TEST_CASE("escalation: a stop that is requested meanwhile is heeded, and nothing is chosen") {
  const LoadedConfig loaded = escalating("out");
  ShrinkingWorld world(loaded);
  world.stops_then = true;
  const RunResult result = world.run(loaded, {{6, world.bytes(1)}});
  CHECK(result.stopped);
  CHECK(result.step == 5);
  CHECK(world.log("out", "escalated").empty());
  CHECK(written_config(open_checkpoint(world.files, result.checkpoint)).config == loaded.config);
}

TEST_CASE("escalation: a disk that is full while the choice is saved, and why it was to be") {
  struct FullDisk final : test::MemoryFileSystem {
    std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override {
      if (path.string().find("step-00000005.partial") != std::string::npos)
        throw FileError(path.string() + ": No space left on device");
      return MemoryFileSystem::create(path);
    }
  };
  const LoadedConfig loaded = escalating("out");
  ShrinkingWorld world(loaded);
  FullDisk disk;
  const std::string message = test::error_text<Error>([&] {
    world.run(loaded, {{6, world.bytes(1)}}, "", &disk);
  });
  CHECK_THAT(message, Catch::Contains("No space left on device; it was to be saved that the run goes on with "
                                      "policies.checkpoint.enabled = \"default\", policies.checkpoint.keep = "
                                      "[\"offload\"], as a step was refused memory: memory budget of "));
}

TEST_CASE("escalation: without a plan the next choice is tried, and the next") {
  const LoadedConfig loaded = escalating("out");
  ShrinkingWorld world(loaded);
  const int64_t room = world.bytes(2);
  world.now = {std::nullopt, "no plan today"};
  world.planned.assign(world.planned.size(), world.now);
  CHECK(world.run(loaded, {{6, room}}).step == 12);
  const std::vector<Json> events = world.log("out", "escalated");
  REQUIRE(events.size() == 3);  // all three at the same step: the first two did not fit
  for (const Json& event : events) {
    CHECK(event["step"] == 5);
    CHECK_FALSE(event.contains("planned_bytes"));
  }
  CHECK(events[0]["set"] == "policies.checkpoint.enabled = \"default\"");
  CHECK(events[1]["set"] == "policies.checkpoint.keep = [\"offload\"]");
  CHECK(events[2]["set"] == "memory.split = 2");
}

TEST_CASE("escalation: what asks for it has to be able to") {
  const auto refused = [](const std::string& set) {
    return test::error_text<ConfigError>([&] {
      parse_config(
          "[train]\nsteps = 1\n[data]\nkind = \"synthetic\"\nbatch = 8\n[model]\nname = "
          "\"DiT-S/4\"\n",
          "a.toml", {"memory.on_out_of_memory=escalate", set});
    });
  };
  CHECK_THAT(
      refused("memory.ledger=false"),
      Catch::Contains("memory.on_out_of_memory = \"escalate\" needs the ledger, which says what did not "
                      "fit; set memory.ledger = true, or set memory.on_out_of_memory = \"stop\""));
  CHECK_THAT(
      refused("memory.split=9"),
      Catch::Contains("memory.split = 9 is more than the 8 samples of a micro-batch; allowed: [1, 8]"));
}

}  // namespace dtk
