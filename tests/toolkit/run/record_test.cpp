// What a run leaves of itself: grids on the way, MFU, event files, the report.
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "support/files/safetensors_file.h"
#include "support/runs/image_run.h"
#include "support/runs/run_world.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/dit/flops.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/run/run.h"

using namespace dtk;
using test::tiny;
using test::World;
using Json = nlohmann::json;

TEST_CASE("grids on the way change nothing of the training, and show the same noise") {
  World plain, drawing;
  plain.run(tiny("out"));
  LoadedConfig loaded = tiny("out");
  loaded.config.train.sample_every = 6;
  const RunResult result = drawing.run(loaded);
  CHECK(drawing.files.list("out/samples") ==
        std::vector<std::string>{"step-00000006.png", "step-00000012.png", "step-00000018.png",
                                 "step-00000020.png"});
  CHECK(result.samples == "out/samples/step-00000020.png");
  CHECK(drawing.listener.sampler_steps.size() == 8);
  for (const char* file : {"model", "optimizer", "ema"}) {
    const std::string name = std::string("out/checkpoints/step-00000020/") + file + ".safetensors";
    INFO(name);
    CHECK(drawing.files.read(name) == plain.files.read(name));
  }
  CHECK(drawing.files.read("out/samples/step-00000020.png") ==
        plain.files.read("out/samples/step-00000020.png"));
  CHECK(drawing.files.read("out/samples/step-00000006.png") !=
        drawing.files.read("out/samples/step-00000020.png"));
  const Json memory = Json::parse(drawing.files.read("out/memory.json"));
  for (const Json& phase : memory["phases"]) CHECK_FALSE(phase["categories"].contains("other"));
}

TEST_CASE("the time that grids take is none of the training's") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.train.sample_every = 1;
  world.clock.seconds();
  struct Slow final : RunObserver {
    explicit Slow(test::SteppingClock& given) : clock(given) {}
    void message(const std::string&) override {}
    void progress(const Progress&) override {}
    void working(const std::string&, int64_t, int64_t) override {
      for (int i = 0; i < 1000000; ++i) clock.seconds();  // 1000 seconds
    }
    test::SteppingClock& clock;
  } slow(world.clock);
  const RunResult result = run_training(loaded, at::kCPU, {}, test::images_of(loaded, world.data),
                                        {world.files, world.clock, slow, world.stop});
  CHECK(result.step == 20);
  CHECK(result.seconds < 10);
}

TEST_CASE("the time that validations take is none of the training's") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.data.validation = 16;
  loaded.config.train.validate_every = 1;
  int asked = 0;
  world.stop = [&] {  // before each step, and before each of the 4 micro-batches of a validation
    if (++asked % 5 != 1) {
      for (int i = 0; i < 10000; ++i) world.clock.seconds();  // 10 seconds
    }
    return false;
  };
  const RunResult result = world.run(loaded);
  CHECK(result.step == 20);
  CHECK(result.seconds < 10);
  CHECK(world.listener.last.elapsed_seconds < 10);
}

TEST_CASE("grids that do not fit beside the training end it, with the way out") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.train.sample_every = 6;
  loaded.config.train.checkpoint_every = 4;
  world.run(loaded);
  const Json memory = Json::parse(world.files.read("out/memory.json"));
  loaded.config.train.out = "small";
  dit::options_of(loaded.config).grid.per_class = 64;
  loaded.config.memory.budget = ByteSize{memory["peak"]["bytes"].get<int64_t>()};
  try {
    world.run(loaded);
    FAIL("256 samples fit into " << loaded.config.memory.budget->bytes << " bytes");
  } catch (const Error& error) {
    CHECK(error.code == ExitCode::memory);
    CHECK_THAT(
        error.what(),
        Catch::EndsWith("; the samples of step 6 do not fit beside the training; last checkpoint: "
                        "small/checkpoints/step-00000004; lower sample.per_class or sample.classes, raise "
                        "memory.budget if it is set, or set train.sample_every = 0"));
  }
}

TEST_CASE("samples that are not images are kept as latents") {
  World world;
  LoadedConfig loaded = tiny("out");
  dit::options_of(loaded.config).model.channels = 4;
  dit::options_of(loaded.config).grid.classes = "0-1";
  dit::options_of(loaded.config).grid.per_class = 3;
  world.data = test::tiny_data(64, 4);
  const RunResult result = world.run(loaded);
  CHECK(result.samples == "out/samples/step-00000020.safetensors");
  CHECK(world.listener.heard("sampling 6 latents in 2 steps"));
  CHECK(world.listener.heard(
      "the samples are latents of 4 channels, as the autoencoder gives them, not images: written to "
      "out/samples/step-00000020.safetensors"));
  const test::SafetensorsFile file = test::read_safetensors(world.files, result.samples);
  REQUIRE(file.tensors.size() == 2);
  for (const NamedTensor& entry : file.tensors) {
    INFO(entry.name);
    if (entry.name == "labels") {
      const auto values = entry.tensor.accessor<int64_t, 1>();
      REQUIRE(values.size(0) == 6);
      for (int64_t i = 0; i < 6; ++i) CHECK(values[i] == i / 3);
    } else {
      CHECK(entry.tensor.sizes() == at::IntArrayRef({6, 4, 8, 8}));
    }
  }
  CHECK(world.files.read("out/report.html").find("latents of 4 channels") != std::string::npos);
}

TEST_CASE("MFU follows from the speed, the model's arithmetic and the peak that was given") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.log.peak_tflops = 0.001;
  const RunResult result = world.run(loaded);
  const auto flops = static_cast<double>(dit::training_flops_per_image(dit::options_of(loaded.config).model));
  REQUIRE(result.mfu);
  CHECK(*result.mfu == Approx(result.images_per_second * flops / 1e9));
  std::istringstream lines(world.files.read("out/log.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json["event"] == "start") {
      CHECK(json["flops_per_image"] == flops);
      CHECK(json["peak_flops"] == 1e9);
      CHECK(json["tokens_per_image"] == 4);
    }
    if (json["event"] != "step") continue;
    CHECK(json["mfu"].get<double>() == Approx(json["images_per_second"].get<double>() * flops / 1e9));
    ++steps;
  }
  CHECK(steps == 8);
  World other;
  CHECK_FALSE(other.run(tiny("out")).mfu);
  CHECK(other.files.read("out/log.jsonl").find("mfu") == std::string::npos);
}

TEST_CASE("event files and the report are left out where they are not wanted") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.log.tensorboard = loaded.config.log.report = false;
  CHECK(world.run(loaded).report.empty());
  CHECK_FALSE(world.files.exists("out/tensorboard"));
  CHECK_FALSE(world.files.exists("out/report.html"));
}

TEST_CASE("the report of a resumed run shows the whole run, once") {
  World world;
  LoadedConfig loaded = tiny("out");
  int asked = 0;
  world.stop = [&] { return ++asked > 13; };
  const RunResult stopped = world.run(loaded);
  CHECK(stopped.report == "out/report.html");
  CHECK(world.files.read("out/report.html").find("stopped at step 13") != std::string::npos);
  world.stop = [] { return false; };
  world.files.remove_all("out/checkpoints/step-00000013");
  world.run(loaded, "latest");
  const std::string report = world.files.read("out/report.html");
  CHECK(report.find("finished at step 20") != std::string::npos);
  CHECK(report.find("resumed once, last at step 8") != std::string::npos);
  // Steps 1, 2, 5 and 8 of the first process; 10, 15, 16 and 20 of the second, not 10 and 13 of the first.
  CHECK(report.find("class=\"bold\" data-points=\"8\"") != std::string::npos);
  CHECK(report.find("data-table=\"policies\"") != std::string::npos);
  CHECK(report.find(" of training in 2 processes</small>") != std::string::npos);
  CHECK(world.files.list("out/tensorboard").size() == 2);
}

TEST_CASE("the end of a resumed run counts its own time and that of the whole run") {
  World world;
  LoadedConfig loaded = tiny("out");
  loaded.config.train.steps = 8;
  const RunResult first = world.run(loaded);
  CHECK(first.run_seconds == Approx(first.seconds).margin(0.002));
  loaded.config.train.steps = 20;
  const RunResult second = world.run(loaded, "latest");
  CHECK(second.trained_steps == 12);
  CHECK(second.seconds > 0);
  // The clock moves on a little between the last step and the checkpoint, which counts.
  CHECK(second.run_seconds == Approx(first.seconds + second.seconds).margin(0.01));
  std::vector<Json> ends;
  std::istringstream lines(world.files.read("out/log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    if (Json::parse(line)["event"] == "end") ends.push_back(Json::parse(line));
  }
  REQUIRE(ends.size() == 2);
  CHECK(ends[0]["run_seconds"] == first.run_seconds);
  CHECK(ends[1]["seconds"] == second.seconds);
  CHECK(ends[1]["run_seconds"] == second.run_seconds);
}
