// A whole run through its seams: files in memory, a clock that does as it is told.
#include <dtk/toolkit/checkpoint_store.h>
#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/run.h>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/faulty_file_system.h"
#include "support/memory_file_system.h"
#include "support/tiny_run.h"

using namespace dtk;
using Json = nlohmann::json;

namespace {

struct Listener final : RunObserver {
  void message(const std::string& text) override { messages.push_back(text); }
  void progress(const Progress& progress) override { last = progress; }
  std::vector<std::string> messages;
  Progress last;
};

LoadedConfig tiny(const std::string& out) {
  LoadedConfig loaded;
  loaded.config = test::tiny_config();
  loaded.config.data.images = "made up";
  loaded.config.data.labels = "made up";
  loaded.config.train.out = out;
  loaded.config.train.checkpoint_every = 8;
  return loaded;
}

struct World {
  RunResult run(const LoadedConfig& loaded, const std::string& resume = "", FileSystem* other = nullptr) {
    FileSystem& disk = other != nullptr ? *other : files;
    const auto from =
        resume.empty() ? std::filesystem::path() : find_checkpoint(disk, resume, loaded.config.train.out);
    return run_training(loaded, at::kCPU, from, data, {disk, clock, listener, stop});
  }
  test::MemoryFileSystem files;
  test::SteppingClock clock{0.001};
  Listener listener;
  std::function<bool()> stop = [] { return false; };
  std::shared_ptr<const DataSource> data = test::tiny_data();
};

}  // namespace

TEST_CASE("a run leaves its folder complete") {
  World world;
  const RunResult result = world.run(tiny("out"));
  CHECK(result.step == 20);
  CHECK_FALSE(result.stopped);
  CHECK(world.files.list("out") ==
        std::vector<std::string>{"checkpoints", "config.toml", "log.jsonl", "memory.json", "samples"});
  CHECK(world.files.list("out/checkpoints") == std::vector<std::string>{"step-00000016", "step-00000020"});
  CHECK(world.files.list("out/samples") == std::vector<std::string>{"step-00000020.png"});
  CHECK(world.files.read("out/samples/step-00000020.png").substr(1, 3) == "PNG");
  CHECK(result.loss > 0);
  CHECK(world.listener.last.step == 20);
  CHECK(world.listener.last.fraction == 1.0);
}

TEST_CASE("memory.json follows its schema, sums up, and has no byte without owner") {
  World world;
  world.run(tiny("out"));
  const Json json = Json::parse(world.files.read("out/memory.json"));
  CHECK(json["version"] == 1);
  CHECK(json["device"] == "cpu");
  CHECK(json["unit"] == "bytes");
  CHECK(json["host"]["peak_bytes"] == 0);
  std::vector<std::string> names;
  int64_t highest = 0;
  for (const Json& phase : json["phases"]) {
    names.push_back(phase["name"]);
    int64_t sum = 0;
    for (const auto& [category, bytes] : phase["categories"].items()) {
      int64_t items = 0;
      for (const auto& [label, part] : phase["items"][category].items()) items += part.get<int64_t>();
      CHECK(items == bytes.get<int64_t>());
      sum += bytes.get<int64_t>();
    }
    INFO(phase["name"]);
    CHECK(sum == phase["peak_bytes"].get<int64_t>());
    CHECK_FALSE(phase["categories"].contains("other"));
    highest = std::max(highest, phase["peak_bytes"].get<int64_t>());
  }
  CHECK(names == std::vector<std::string>{"build", "forward", "first_step", "ema", "backward", "optimizer",
                                          "save", "sample"});
  CHECK(json["peak"]["bytes"] == highest);
}

TEST_CASE("log.jsonl has a line for the start, every interval, each checkpoint and the end") {
  World world;
  world.run(tiny("out"));
  std::istringstream lines(world.files.read("out/log.jsonl"));
  std::map<std::string, int> events;
  int64_t last_step = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    ++events[json["event"].get<std::string>()];
    if (json["event"] == "step") {
      for (const char* key : {"loss", "lr", "gradient_norm", "images_per_second", "peak_bytes", "seconds"}) {
        INFO(key);
        CHECK(json[key].is_number());
      }
      last_step = json["step"];
    }
  }
  // Steps 5, 10, 15, 20, and before the checkpoints at 8 and 16.
  CHECK(events == std::map<std::string, int>{{"start", 1}, {"step", 6}, {"checkpoint", 3}, {"end", 1}});
  CHECK(last_step == 20);
}

TEST_CASE("a stopped run has a complete checkpoint, and resumed it ends bit-equal") {
  World whole;
  const RunResult expected = whole.run(tiny("out"));
  World world;
  int asked = 0;
  world.stop = [&] { return ++asked > 11; };
  const RunResult stopped = world.run(tiny("out"));
  CHECK(stopped.stopped);
  CHECK(stopped.step == 11);
  CHECK(stopped.samples.empty());
  world.stop = [] { return false; };
  const RunResult resumed = world.run(tiny("out"), "latest");
  CHECK(resumed.step == 20);
  for (const char* file : {"model", "optimizer", "ema", "random"}) {
    const std::string name = std::string("out/checkpoints/step-00000020/") + file + ".safetensors";
    INFO(name);
    CHECK(world.files.read(name) == whole.files.read(name));
  }
  CHECK(world.files.read("out/samples/step-00000020.png") ==
        whole.files.read("out/samples/step-00000020.png"));
  CHECK(world.listener.messages.size() > 1);
}

TEST_CASE("resuming a finished run changes none of its results") {
  World world;
  world.run(tiny("out"));
  const std::string memory = world.files.read("out/memory.json");
  const std::string state = world.files.read("out/checkpoints/step-00000020/state.json");
  const RunResult again = world.run(tiny("out"), "latest");
  CHECK(again.trained_steps == 0);
  CHECK(again.checkpoint == "out/checkpoints/step-00000020");
  CHECK(world.files.read("out/memory.json") == memory);
  CHECK(world.files.read("out/checkpoints/step-00000020/state.json") == state);
}

TEST_CASE("running the saved configuration again gives the same run") {
  World world;
  world.run(tiny("out"));
  LoadedConfig again =
      parse_config(world.files.read("out/config.toml"), "out/config.toml", {"train.out=again"});
  world.run(again);
  const std::string name = "/checkpoints/step-00000020/model.safetensors";
  CHECK(world.files.read("out" + name) == world.files.read("again" + name));
}

TEST_CASE("what does not fit together is refused with the way out") {
  World world;
  world.run(tiny("out"));
  CHECK_THROWS_WITH(
      world.run(tiny("out")),
      "out already holds a run; continue it with --resume latest, or name another folder: --set "
      "train.out=out-2");
  CHECK_THROWS_WITH(
      world.run(tiny("new"), "latest"),
      "--resume latest: no complete checkpoint in new/checkpoints; name a run folder or a checkpoint "
      "folder, or start anew without --resume");
  LoadedConfig other = tiny("out");
  other.config.model.hidden = 32;
  other.config.optimizer.lr = 0.5;
  CHECK_THROWS_WITH(world.run(other, "latest"),
                    Catch::Contains("model.hidden: 16 in the checkpoint, 32 now") &&
                        Catch::Contains("optimizer.lr: 0.01 in the checkpoint, 0.5 now"));
  LoadedConfig threads = tiny("out");
  threads.config.train.steps = 22;
  threads.config.train.threads = 2;
  CHECK_THROWS_WITH(world.run(threads, "latest"),
                    "out/checkpoints/step-00000020 was written with train.threads = 1, this run has 2, and "
                    "results depend on "
                    "it; use --set train.threads=1, or accept other rounding with --set "
                    "train.allow_thread_change=true");
  threads.config.train.allow_thread_change = true;
  CHECK(world.run(threads, "latest").step == 22);
  CHECK_THROWS_WITH(
      world.run(tiny("out"), "out/checkpoints/step-00000020"),
      "--resume out/checkpoints/step-00000020: out holds the newer out/checkpoints/step-00000022; "
      "continue that with --resume latest, or start a branch in another folder: --set train.out=out-2");
}

TEST_CASE("a run whose loss is not finite stops with the last good checkpoint") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.optimizer.lr = 1e30;
  loaded.config.schedule.warmup = 0;
  loaded.config.train.checkpoint_every = 1;
  CHECK_THROWS_WITH(world.run(loaded),
                    Catch::Contains("became infinite or NaN") &&
                        Catch::Contains("the weights were not changed by it. Last good checkpoint: "
                                        "out/checkpoints/step-0000000"));
  const auto latest = latest_checkpoint(world.files, "out/checkpoints");
  REQUIRE(latest);
  CHECK_NOTHROW(open_checkpoint(world.files, *latest));
}

TEST_CASE("a disk that fails at any change leaves a run that can be resumed, or none") {
  World counting;
  test::FaultyFileSystem none(counting.files, {});
  counting.run(tiny("out"), "", &none);
  const int64_t changes = none.changes();
  REQUIRE(changes > 60);
  for (int64_t at = 1; at <= changes; at += 3) {
    INFO("change " << at << " of " << changes);
    World world;
    test::FaultyFileSystem disk(world.files, {.at = at, .is_final = true});
    CHECK_THROWS_AS(world.run(tiny("out"), "", &disk), FileError);
    if (latest_checkpoint(world.files, "out/checkpoints")) {
      CHECK(world.run(tiny("out"), "latest").step == 20);
    }
  }
}
