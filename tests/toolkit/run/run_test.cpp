// A whole run through its seams: files in memory, a clock that does as it is told.
#include "toolkit/run/run.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/files/faulty_file_system.h"
#include "support/runs/run_world.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/train/save_load.h"

using namespace dtk;
using test::tiny;
using test::World;
using Json = nlohmann::json;

TEST_CASE("a run leaves its folder complete") {
  World world;
  const RunResult result = world.run(tiny("out"));
  CHECK(result.step == 20);
  CHECK_FALSE(result.stopped);
  CHECK(world.files.list("out") == std::vector<std::string>{"checkpoints", "config.toml", "data.json", "lock",
                                                            "log.jsonl", "memory.json", "report.html",
                                                            "samples", "tensorboard"});
  CHECK(world.files.list("out/checkpoints") == std::vector<std::string>{"step-00000016", "step-00000020"});
  CHECK(world.files.list("out/samples") == std::vector<std::string>{"step-00000020.png"});
  CHECK(world.files.read("out/samples/step-00000020.png").substr(1, 3) == "PNG");
  CHECK(result.loss > 0);
  CHECK(world.listener.last.step == 20);
  CHECK(world.listener.last.peak_bytes);
  CHECK(world.listener.sampler_steps == std::vector<std::string>{"1/2", "2/2"});
  CHECK(world.listener.last.fraction == 1.0);
  CHECK(world.listener.finished_at_step == 20);
  CHECK_FALSE(world.listener.finished_with_savings);  // told before they are measured
  CHECK(result.savings.size() == 5);
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
      for (const char* key : {"loss", "lr", "gradient_norm", "images_per_second", "peak_bytes", "seconds",
                              "wait_seconds", "wait_per_step"}) {
        INFO(key);
        CHECK(json[key].is_number());
      }
      last_step = json["step"];
    }
  }
  // Steps 1, 2, 5, 10, 15, 20, and before the checkpoints at 8 and 16.
  CHECK(events ==
        std::map<std::string, int>{{"start", 1}, {"step", 8}, {"sample", 1}, {"checkpoint", 3}, {"end", 1}});
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
  CHECK(stopped.savings.empty());
  CHECK(world.listener.finished_at_step == 11);
  world.stop = [] { return false; };
  const RunResult resumed = world.run(tiny("out"), "latest");
  CHECK(resumed.step == 20);
  for (const char* file : {"model", "optimizer", "ema"}) {
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

TEST_CASE("what a resume changes is said, logged, shown and saved") {
  World world;
  world.run(tiny("out"));
  LoadedConfig other = tiny("out");
  other.config.train.steps = 24;
  other.config.optimizer.lr = 0.5;
  other.config.log.report = true;
  other.config.train.keep_checkpoints = 3;
  const RunResult result = world.run(other, "latest");
  CHECK(result.step == 24);
  CHECK(world.listener.heard("from here on: optimizer.lr = 0.5 (was 0.01)"));
  CHECK(world.listener.heard("from here on: train.keep_checkpoints = 3 (was 2)"));
  const std::string log = world.files.read("out/log.jsonl");
  CHECK(log.find("\"changes\":\"train.keep_checkpoints = 3 (was 2)\",\"changes_of_result\":\"train.steps = "
                 "24 (was 20); optimizer.lr = 0.5 (was 0.01)\"") != std::string::npos);
  const std::string page = world.files.read("out/report.html");
  CHECK(page.find(
            "After step 20 the run went on with train.steps = 24 (was 20); optimizer.lr = 0.5 (was 0.01).") !=
        std::string::npos);
  CHECK(page.find("<path class=\"mark\"") != std::string::npos);
  const LoadedConfig saved = written_config(open_checkpoint(world.files, result.checkpoint));
  REQUIRE(saved.history.size() == 3);
  CHECK(saved.history[2] == ConfigChange{20, "optimizer.lr = 0.5 (was 0.01)", true});

  other.config.train.steps = 26;  // what came before stays known
  const LoadedConfig again =
      written_config(open_checkpoint(world.files, world.run(other, "latest").checkpoint));
  REQUIRE(again.history.size() == 4);
  CHECK(again.history[3] == ConfigChange{24, "train.steps = 26 (was 24)", true});

  // Without a change there is nothing of it.
  World plain;
  plain.run(tiny("out"));
  LoadedConfig same = tiny("out");
  const RunResult end = plain.run(same, "latest");
  CHECK(plain.files.read("out/log.jsonl").find("changes") == std::string::npos);
  CHECK_FALSE(open_checkpoint(plain.files, end.checkpoint).has("history.json"));
  // Nor is one announced where nothing is left to train.
  same.config.optimizer.lr = 0.5;
  plain.run(same, "latest");
  CHECK_FALSE(plain.listener.heard("from here on: optimizer.lr = 0.5 (was 0.01)"));
}

TEST_CASE("what does not fit together is refused with the way out") {
  World world;
  world.run(tiny("out"));
  CHECK_THROWS_WITH(world.run(tiny("out")),
                    "out already holds a run; continue it with --resume out, or name another folder: --set "
                    "train.out=out-2");
  CHECK_THROWS_WITH(
      world.run(tiny("new"), "latest"),
      "--resume latest: no complete checkpoint in new/checkpoints; name a run folder or a checkpoint "
      "folder, or start anew without --resume");
  LoadedConfig other = tiny("out");
  dit::options_of(other.config).model.hidden = 32;
  other.config.optimizer.lr = 0.5;
  CHECK_THROWS_WITH(
      world.run(other, "latest"),
      Catch::Contains("model.hidden: 16 in the checkpoint, 32 now; the weights were trained with it"));
  LoadedConfig threads = tiny("out");
  threads.config.train.steps = 22;
  threads.config.train.threads = 2;
  CHECK_THROWS_WITH(world.run(threads, "latest"),
                    "out/checkpoints/step-00000020 was written with train.threads = 1, this run has 2, and "
                    "results depend on it; set train.threads = 1, or accept other rounding: set "
                    "train.allow_thread_change = true");
  threads.config.train.allow_thread_change = true;
  LoadedConfig fresh = threads;
  fresh.config.train.out = "fresh";
  fresh.config.train.threads = 1;
  const std::string no_use =
      ": train.allow_thread_change = true has no use in a new run: it lets a resumed one go on with another "
      "number of threads; remove it";
  fresh.locations["train.allow_thread_change"] = "a.toml:3:9";
  CHECK_THROWS_WITH(world.run(fresh),
                    "a.toml:3:9" + no_use +
                        " (what a file sets is taken back with --set "
                        "train.allow_thread_change=default), or continue a run with --resume");
  fresh.locations["train.allow_thread_change"] = "--set train.allow_thread_change=true";
  fresh.origins["train.allow_thread_change"] = {Origin::Source::set};
  CHECK_THROWS_WITH(world.run(fresh),
                    "--set train.allow_thread_change=true" + no_use + ", or continue a run with --resume");
  CHECK_FALSE(world.files.exists("fresh"));
  threads.locations = fresh.locations;  // written or not, a resumed run has a use for it
  CHECK(world.run(threads, "latest").step == 22);
  CHECK_THROWS_WITH(
      world.run(tiny("out"), "out/checkpoints/step-00000020"),
      "--resume out/checkpoints/step-00000020: out holds the newer out/checkpoints/step-00000022; "
      "continue that with --resume out, or start a branch in another folder: --set train.out=out-2");
}

TEST_CASE("what is refused leaves nothing in the way of the corrected start") {
  World world;
  LoadedConfig loaded = tiny("runs/a");
  world.data = test::tiny_data(3);
  CHECK_THROWS_WITH(world.run(loaded), Catch::Contains("set data.batch = 6 or less"));
  CHECK_FALSE(world.files.exists("runs"));
  CHECK(world.listener.messages.empty());  // the configuration of a refused run would hide the reason
  dit::options_of(loaded.config).model.hidden = 15;
  CHECK_THROWS(world.run(loaded));
  CHECK_FALSE(world.files.exists("runs"));
  world.data = test::tiny_data();
  CHECK(world.run(tiny("runs/a")).step == 20);
  CHECK(world.listener.messages.front() == print_config(tiny("runs/a")));
  CHECK(world.listener.messages[1].starts_with("training DiT, 0.0"));
  CHECK(world.listener.messages[1].ends_with(" M parameters, on cpu with 1 thread into runs/a"));
  CHECK(world.listener.messages[2] == "data: 64 made up");
  CHECK(world.listener.messages[3] == "device: cpu");
}

TEST_CASE("a folder that holds other things than a run is refused, an empty one is not") {
  World world;
  world.files.create_directories("out/a");
  for (const char* name : {"b", "config.toml", "d", "e"}) {
    write_file_atomically(world.files, std::string("out/") + name, "mine");
  }
  CHECK_THROWS_WITH(
      world.run(tiny("out/")),
      "train.out = \"out\" is a folder that holds other things than a run: a, b, config.toml "
      "and 2 more; allowed: a new or an empty folder; name another folder: --set train.out=out-2");
  CHECK(world.files.list("out") == std::vector<std::string>{"a", "b", "config.toml", "d", "e"});
  CHECK(world.files.read("out/config.toml") == "mine");
  world.files.create_directories("empty");
  CHECK(world.run(tiny("empty")).step == 20);
}

TEST_CASE("two runs do not train into one folder") {
  World world;
  world.run(tiny("out"));
  {
    const auto other = world.files.try_lock("out/lock");
    const std::string message =
        "out: another process is training into this folder; wait until it has ended, or name another folder: "
        "--set train.out=out-2";
    CHECK_THROWS_WITH(world.run(tiny("out")), message);
    CHECK_THROWS_WITH(world.run(tiny("out"), "latest"), message);
    CHECK(world.run(tiny("branch"), "out/checkpoints/step-00000016").step == 20);
    world.files.remove_all("out/checkpoints/step-00000016/model.safetensors");  // as that run thins them out
    CHECK_THROWS_WITH(world.run(tiny("out"), "out/checkpoints/step-00000016"), message);
  }
  CHECK_NOTHROW(world.run(tiny("out"), "latest"));
}

TEST_CASE("a start that came to no step is taken over, a run that did is not") {
  World world;
  world.files.create_directories("out/checkpoints/step-00000008.partial");
  write_file_atomically(world.files, "out/config.toml", "");
  write_file_atomically(world.files, "out/log.jsonl", "{\"event\":\"start\",\"step\":0}\n");
  const std::string refused =
      "out already holds a run that has no checkpoint; remove the folder if nothing in it is of use, or name "
      "another folder: --set train.out=out-2";
  CHECK_THROWS_WITH(world.run(tiny("out")), refused);  // without a lock it may not be a run's
  write_file_atomically(world.files, "out/lock", "");
  const std::string started = world.files.read("out/log.jsonl");
  write_file_atomically(world.files, "out/log.jsonl", "{\"event\":\"step\",\"step\":5}\n");
  CHECK_THROWS_WITH(world.run(tiny("out")),
                    "out already holds a run that has no checkpoint; begin again in its place with --resume "
                    "auto, or name another folder: --set train.out=out-2");
  write_file_atomically(world.files, "out/log.jsonl", started);
  CHECK(world.run(tiny("out")).step == 20);
  CHECK(world.listener.heard("out holds an earlier start that came to no step; this run takes its place"));
  CHECK(world.files.read("out/log.jsonl").find("\"event\":\"start\"") ==
        world.files.read("out/log.jsonl").rfind("\"event\":\"start\""));
}

TEST_CASE("what --set says of a policy that is switched off has no effect, and that is told") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.policies.checkpoint.enabled = policies::Enabled::off;
  for (const char* const key : {"enabled", "keep"})
    loaded.origins[std::string("policies.checkpoint.") + key] = {.source = Origin::Source::set};
  loaded.config.policies.attention.enabled = policies::Enabled::by_default;
  loaded.origins["policies.attention.kernel"] = {.source = Origin::Source::set};
  world.run(loaded);
  int told = 0;
  for (const std::string& line : world.listener.messages) told += line.starts_with("policies.") ? 1 : 0;
  CHECK(told == 1);
  CHECK(world.listener.heard("policies.checkpoint.keep has no effect: policies.checkpoint.enabled = false"));
}

TEST_CASE("a damaged checkpoint is passed over by name only, and then set aside") {
  World world;
  world.run(tiny("out"));
  const std::string newest = "out/checkpoints/step-00000020", older = "out/checkpoints/step-00000016";
  write_file_atomically(world.files, newest + "/state.json", "");
  const std::string message = newest + " is a damaged checkpoint:\n  state.json has 0 bytes instead of ";
  CHECK_THROWS_WITH(world.run(tiny("out"), "latest"),
                    Catch::StartsWith(message) &&
                        Catch::EndsWith("\nName the older " + older + " instead, which is whole"));
  CHECK_THROWS_WITH(world.run(tiny("out"), newest + "/"), Catch::StartsWith(message));
  CHECK(world.run(tiny("out"), older).step == 20);
  CHECK(world.files.list("out/checkpoints") ==
        std::vector<std::string>{"step-00000016", "step-00000020", "step-00000020.damaged"});
  const auto passed = std::find_if(world.listener.messages.begin(), world.listener.messages.end(),
                                   [](const std::string& text) { return text.starts_with("passed over "); });
  REQUIRE(passed != world.listener.messages.end());
  CHECK_THAT(
      *passed,
      Catch::StartsWith("passed over " + newest + ", which is damaged: state.json has 0 bytes instead of ") &&
          Catch::EndsWith(". It is now called " + newest + ".damaged; remove it once it is of no use"));
  CHECK(open_checkpoint(world.files, newest).step() == 20);
}

TEST_CASE("a whole checkpoint below a damaged one is not abandoned either") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.train.keep_checkpoints = 3;
  world.run(loaded);
  world.files.remove_all("out/checkpoints/step-00000020/manifest.json");
  CHECK_THROWS_WITH(world.run(loaded, "out/checkpoints/step-00000008"),
                    "--resume out/checkpoints/step-00000008: out holds the newer "
                    "out/checkpoints/step-00000016; continue that with --resume "
                    "out/checkpoints/step-00000016, or start a branch in another folder: --set "
                    "train.out=out-2");
  CHECK(world.files.exists("out/checkpoints/step-00000020"));  // what is refused renames nothing
}

TEST_CASE("a stop while the samples are drawn is a stop, and says how to draw them") {
  World world;
  LoadedConfig loaded = tiny("out");
  world.stop = [&] { return !world.listener.sampler_steps.empty(); };
  const RunResult result = world.run(loaded);
  CHECK(result.stopped);
  CHECK(result.step == 20);
  CHECK(result.samples.empty());
  CHECK(result.next_step ==
        "the training is complete, its samples were not made; make them with dit-sample --checkpoint "
        "out/checkpoints/step-00000020 --classes 0-3 --per-class 1 --out out/samples/step-00000020.png");
  CHECK(world.listener.sampler_steps == std::vector<std::string>{"1/2"});
  CHECK(open_checkpoint(world.files, result.checkpoint).step() == 20);
  CHECK(world.files.list("out/samples").empty());
  CHECK(world.files.exists("out/memory.json"));
}

TEST_CASE("without images to draw there is no folder for them") {
  World world;
  LoadedConfig loaded = tiny("out");
  dit::options_of(loaded.config).grid.per_class = 0;
  CHECK(world.run(loaded).samples.empty());
  CHECK_FALSE(world.files.exists("out/samples"));
  CHECK(world.listener.sampler_steps.empty());
}

TEST_CASE("without the ledger no figure of memory is given") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.memory.ledger = false;
  CHECK_FALSE(world.run(loaded).memory);
  CHECK_FALSE(world.listener.last.peak_bytes);
  CHECK(world.files.read("out/log.jsonl").find("peak_bytes") == std::string::npos);
  CHECK_FALSE(world.files.exists("out/memory.json"));
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
  LoadedConfig job = tiny("out");
  job.config.train.steps = 10;
  job.config.train.checkpoint_every = 4;
  World counting;
  test::FaultyFileSystem none(counting.files, {});
  counting.run(job, "", &none);
  const int64_t changes = none.changes();
  REQUIRE(changes > 60);
  for (int64_t at = 1; at <= changes; at += 3) {
    INFO("change " << at << " of " << changes);
    World world;
    test::FaultyFileSystem disk(world.files, {.at = at, .is_final = true});
    try {
      world.run(job, "", &disk);
      // All is done and saved but for what is measured at the very end, which is said.
      const auto& said = world.listener.messages;
      CHECK(std::any_of(said.begin(), said.end(), [](const std::string& text) {
        return text.starts_with("memory.json or report.html stays without what the policies saved: ");
      }));
    } catch (const FileError&) {
    }
    if (latest_checkpoint(world.files, "out/checkpoints")) {
      CHECK(world.run(job, "latest").step == 10);
    } else if (world.files.exists("out/log.jsonl") &&
               world.files.read("out/log.jsonl").find("\"event\":\"step\"") != std::string::npos) {
      CHECK_THROWS_WITH(world.run(job), Catch::Contains("already holds a run that has no checkpoint"));
    } else {
      CHECK(world.run(job).step == 10);
    }
  }
}

TEST_CASE("classes of the model that no sample has are named at the start") {
  World world;
  LoadedConfig loaded = tiny("out");
  const auto said = [&](int64_t classes) {
    world.listener.messages.clear();
    dit::options_of(loaded.config).model.classes = classes;
    loaded.config.train.out = "out" + std::to_string(classes);
    world.run(loaded);
    std::string found;
    for (const std::string& line : world.listener.messages) {
      if (line.starts_with("model.classes")) found += line;
    }
    return found;
  };
  CHECK(said(4) == "");
  CHECK(said(5) == "model.classes = 5, but labels of the data go to 3: class 4 is never learnt");
  CHECK(said(7) == "model.classes = 7, but labels of the data go to 3: classes 4 to 6 are never learnt");
}
