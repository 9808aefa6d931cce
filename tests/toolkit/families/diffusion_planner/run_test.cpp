// Whole runs of the driving model, on frames of the fixture.
#include "toolkit/run/run.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/safetensors_file.h"
#include "support/files/temporary_folder.h"
#include "support/plans/plan_accuracy.h"
#include "support/runs/run_world.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/families/diffusion_planner/metrics.h"
#include "toolkit/families/diffusion_planner/normalization.h"
#include "toolkit/report/history.h"

namespace dtk {
namespace {

using test::error_text;

const std::string frames = std::string(DTK_FIXTURES) + "/diffusion_planner/frames/";
const std::string list = frames + "list.json";

// All kinds of encoders and blocks, each as small as it can be, for the frames of the fixture.
const std::string tiny_diffusion_planner = R"(
[train]
model = "diffusion_planner"
out = "out"
steps = 6
threads = 1
checkpoint_every = 3
log_every = 1
[diffusion_planner]
hidden_dim = 16
num_heads = 2
encoder_mixer_depth = 1
encoder_fusion_depth = 1
decoder_depth = 1
mixer_tokens = 8
mixer_channels = 8
agent_num = 8
predicted_neighbor_num = 8
static_objects_num = 3
lane_num = 6
route_num = 3
polygon_num = 2
line_string_num = 4
[data]
frames = ")" + list + R"("
batch = 2
[optimizer]
lr = 1e-3
clip = 5.0
[policies.precision]
cpu = "fp32"
)";

/// Lists of frames that are not trained on.
struct HeldOutFrames {
  test::TemporaryFolder folder;
  std::string bad = folder.write("bad.npz", "no archive").string();
  std::string one = write("one.json", {frames + "frame_b.npz"});
  std::string one_and_bad = write("bad.json", {frames + "frame_b.npz", bad});

 private:
  std::string write(const std::string& name, const std::vector<std::string>& paths) const {
    std::string json;
    for (const std::string& path : paths) json += (json.empty() ? "[\"" : ", \"") + path + "\"";
    return folder.write(name, json + "]").string();
  }
};

LoadedConfig loaded_with(const std::vector<std::string>& overrides = {}) {
  return parse_config(tiny_diffusion_planner, "tiny.toml", overrides);
}

struct DrivingWorld : test::World {
  int64_t step_flops = 0;  // that a plan says

  RunResult run(const LoadedConfig& loaded, const std::string& resume = "") {
    const auto from =
        resume.empty() ? std::filesystem::path() : find_checkpoint(files, resume, loaded.config.train.out);
    RunWorld of_run{files, clock, listener, stop};
    if (step_flops > 0) {
      of_run.plan = [this](const LoadedConfig&, c10::Device) {
        StartPlan plan;
        plan.step_flops = step_flops;
        return plan;
      };
    }
    return run_training(
        loaded, at::kCPU, from,
        [&](const DataIdentity*, const OpeningProgress&) { return diffusion_planner::open_frames(loaded); },
        of_run);
  }
};

}  // namespace

TEST_CASE("diffusion_planner run: it trains, validates, saves, and draws trajectories of held-out frames") {
  DrivingWorld world;
  const HeldOutFrames held_out;
  const RunResult result = world.run(
      loaded_with({"data.held_out=" + held_out.one, "train.validate_every=3", "train.validate_ema=true"}));
  CHECK(result.step == 6);
  CHECK(std::isfinite(result.loss));
  CHECK(result.held_out == 1);
  REQUIRE(result.validation_loss);
  CHECK(std::isfinite(*result.validation_loss));
  const RunHistory history(world.files.read("out/log.jsonl"));
  REQUIRE(history.validations().size() == 2);
  const std::map<std::string, double>& scores = history.validations().back().scores;
  CHECK(scores.size() >= 10);
  CHECK(std::any_of(world.listener.messages.begin(), world.listener.messages.end(), [](const auto& message) {
    return message.starts_with("validation at step 6: loss ") &&
           message.find(", ego_lateral ") != std::string::npos &&
           message.ends_with(" (1 samples, EMA weights)");
  }));
  CHECK(result.sample_name == "frames");
  CHECK(world.listener.heard("sampling trajectories of up to 8 frames in 10 steps"));
  CHECK(result.samples == "out/samples/step-00000006.safetensors");
  const test::SafetensorsFile file = test::read_safetensors(world.files, result.samples);
  REQUIRE(file.tensors.size() == 3);
  at::Tensor drawn;
  diffusion_planner::Outcome happened;
  for (const NamedTensor& entry : file.tensors) {
    INFO(entry.name);
    CHECK(entry.tensor.isfinite().all().item<bool>());
    if (entry.name == "trajectories") drawn = entry.tensor;
    if (entry.name == "ego_future") happened.ego_future = entry.tensor;
    if (entry.name == "trajectories") CHECK(entry.tensor.sizes() == at::IntArrayRef({1, 9, 80, 4}));
    if (entry.name == "ego_future") CHECK(entry.tensor.sizes() == at::IntArrayRef({1, 80, 4}));
    if (entry.name == "turn_indicator") CHECK(entry.tensor.sizes() == at::IntArrayRef({1, 5}));
  }
  // The samples at the end are of the frames and the weights of the last validation.
  const diffusion_planner::EgoMetrics metrics =
      diffusion_planner::ego_metrics(drawn, happened, diffusion_planner::LossOptions());
  CHECK(scores.at("ego_lateral") == Approx(metrics.lateral.mean().item<double>()).epsilon(1e-5));
  CHECK(scores.at("ego_longitudinal") == Approx(metrics.longitudinal.mean().item<double>()).epsilon(1e-5));
  const std::string report = world.files.read("out/report.html");
  CHECK(report.find("Diffusion-Planner H") != std::string::npos);
  CHECK(report.find("frames/s") != std::string::npos);
  CHECK(report.find("images/s") == std::string::npos);
}

TEST_CASE("diffusion_planner run: a run that is resumed ends with the bits of one that was not") {
  DrivingWorld whole, parts;
  whole.run(loaded_with());
  parts.run(loaded_with({"train.steps=3", "schedule.kind=constant"}));
  const LoadedConfig constant = loaded_with({"schedule.kind=constant"});
  parts.run(constant, "latest");
  DrivingWorld again;
  again.run(constant);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "ema.safetensors"}) {
    const std::string path = std::string("out/checkpoints/step-00000006/") + name;
    CHECK(parts.files.read(path) == again.files.read(path));
    CHECK(parts.files.read(path) != whole.files.read(path));  // of another schedule
  }
}

TEST_CASE(
    "diffusion_planner run: checkpoints hold the scales of the inputs, which a resumed run must have again") {
  constexpr int64_t kLaneFeatures = 33;
  auto scales = diffusion_planner::published_scales(kLaneFeatures);
  DrivingWorld published;
  published.run(loaded_with({"train.steps=3"}));
  const std::string name = "out/checkpoints/step-00000003/normalization.json";
  CHECK(published.files.read(name) == diffusion_planner::normalization_text(scales));

  const test::TemporaryFolder folder;
  scales.at("lanes").mean.front() += 1;
  const std::string file =
      folder.write("scales.json", diffusion_planner::normalization_text(scales)).string();
  const auto loaded = [&](int steps) {
    return loaded_with(
        {"data.normalization=" + file, "schedule.kind=constant", "train.steps=" + std::to_string(steps)});
  };
  DrivingWorld own;
  own.run(loaded(3));
  CHECK(own.files.read(name) == diffusion_planner::normalization_text(scales));
  CHECK(own.files.read("out/checkpoints/step-00000003/model.safetensors") !=
        published.files.read("out/checkpoints/step-00000003/model.safetensors"));
  const std::string before = own.files.read(name);
  scales.at("lanes").mean.front() += 1;
  folder.write("scales.json", diffusion_planner::normalization_text(scales));
  CHECK(error_text<ConfigError>([&] { own.run(loaded(6), "latest"); }) ==
        name +
            ": the run was trained with other numbers than this configuration names; give it the file of "
            "these, or begin a new run");
  folder.write("scales.json", before);
  CHECK(own.run(loaded(6), "latest").step == 6);
}

TEST_CASE("diffusion_planner run: MFU is by the arithmetic that the plan at the start counted") {
  DrivingWorld world;
  world.step_flops = 4'000'000;
  const LoadedConfig loaded = loaded_with({"log.peak_tflops=0.001"});
  const RunResult result = world.run(loaded);
  constexpr double kAFrame = 4e6 / 2;  // of two in a batch
  REQUIRE(result.mfu);
  CHECK(*result.mfu == Approx(result.images_per_second * kAFrame / 1e9));
  CHECK(world.files.read("out/log.jsonl").find("\"flops_per_image\":2000000") != std::string::npos);
  DrivingWorld without_plan;
  CHECK_FALSE(without_plan.run(loaded).mfu);
}

TEST_CASE("diffusion_planner run: checkpointing changes no bit, and lowers the peak") {
  DrivingWorld with, without;
  const RunResult on = with.run(loaded_with());
  const RunResult off = without.run(loaded_with({"policies.checkpoint.enabled=false"}));
  const std::string model = "out/checkpoints/step-00000006/model.safetensors";
  CHECK(with.files.read(model) == without.files.read(model));
  CHECK(on.memory->peak().peak.bytes < off.memory->peak().peak.bytes);
}

TEST_CASE(
    "diffusion_planner run: its defaults are the published recipe's, and places of the policies the "
    "model's") {
  const LoadedConfig h = loaded_with(), up = parse_config(R"(
[train]
model = "diffusion_planner"
steps = 1
[diffusion_planner]
preset = "UP"
)",
                                                          "up.toml", {});
  CHECK(h.config.data.kind == "frames");
  CHECK(diffusion_planner::options_of(h.config).process.prefix);
  CHECK_FALSE(diffusion_planner::options_of(up.config).process.prefix);
  CHECK(diffusion_planner::options_of(up.config).loss.squared_error);
  CHECK(diffusion_planner::options_of(h.config).loss.neighbor == 0.1);
  CHECK(diffusion_planner::options_of(up.config).loss.neighbor == 1.0);
  CHECK(diffusion_planner::options_of(up.config).augmentation.probability == 0);
  CHECK(h.config.policies.ema.decay == 0.999);
  CHECK_FALSE(h.config.policies.ema.warmup);
  const std::vector<std::string>& targets = h.config.policies.checkpoint.targets;
  CHECK(std::any_of(targets.begin(), targets.end(),
                    [](const std::string& one) { return one.find("lane_encoder") != std::string::npos; }));
  CHECK(h.config.policies.precision.fp32.size() == 3);
  const std::string text = print_config(h);
  CHECK(text.find("[model]") == std::string::npos);
  CHECK(text.find("guidance") == std::string::npos);
  CHECK(text.find("# time_len = 31 (H)\n") != std::string::npos);
  CHECK(text.find("\ntime_weights = [1.0, 1.0, 1.0, 1.0]  # default\n") != std::string::npos);
  CHECK(parse_config(text, "saved.toml", {}).config == h.config);
}

TEST_CASE("diffusion_planner run: what belongs to another model is refused where it was written") {
  const auto refusal = [](const std::string& setting) {
    return error_text<ConfigError>([&] { loaded_with({setting}); });
  };
  CHECK(refusal("model.depth=3") ==
        "--set model.depth=3: model.depth has no use with train.model = \"diffusion_planner\"; remove it, or "
        "change train.model");
  CHECK(refusal("sample.guidance=2") ==
        "--set sample.guidance=2: sample.guidance has no use with train.model = \"diffusion_planner\"; "
        "remove it, or change train.model");
  CHECK(refusal("data.kind=idx") ==
        "--set data.kind=idx: data.kind = \"idx\" is not what train.model = \"diffusion_planner\" is trained "
        "on; allowed: frames");
  CHECK(refusal("diffusion_planner.process.prefix=false") ==
        "--set diffusion_planner.process.prefix=false: diffusion_planner.process.prefix = false does not go "
        "with diffusion_planner.preset "
        "= \"H\"; set diffusion_planner.process.prefix = true");
  CHECK(refusal("diffusion_planner.loss.time_weights=[1, 2]") ==
        "--set diffusion_planner.loss.time_weights=[1, 2]: diffusion_planner.loss.time_weights = [1, 2] is "
        "of another "
        "length; allowed: a list of four numbers, each in [0, inf)");
  CHECK(refusal("train.validate_every=2") ==
        "--set train.validate_every=2: train.validate_every = 2 needs held-out samples, and data.held_out is "
        "not set; remove it, or set data.held_out");
  const std::string dit = "[train]\nsteps = 1\n";
  CHECK(error_text<ConfigError>([&] { parse_config(dit, "a.toml", {"diffusion_planner.preset=UP"}); }) ==
        "--set diffusion_planner.preset=UP: diffusion_planner.preset has no use with train.model = \"dit\"; "
        "remove it, or change "
        "train.model");
}

TEST_CASE("diffusion_planner run: what has no use beside other keys, or does not go with them, is refused") {
  const auto refusal = [](const std::vector<std::string>& settings) {
    return error_text<ConfigError>([&] { loaded_with(settings); });
  };
  const auto no_use = [&](const std::string& key, const std::string& value, const std::string& because) {
    const std::string setting = key + "=" + value, reason = because.substr(0, because.find(' '));
    std::string other = because;
    other.erase(std::remove(other.begin(), other.end(), ' '), other.end());
    other.erase(std::remove(other.begin(), other.end(), '"'), other.end());
    CHECK(refusal({setting, other}) == "--set " + setting + ": " + key + " has no use with " + because +
                                           "; remove it, or change " + reason);
  };
  const std::string loss = "diffusion_planner.loss.", augmentation = "diffusion_planner.augmentation.";
  for (const char* const name : {"lateral", "longitudinal", "heading", "speed_weight"}) {
    no_use(loss + name, "2", "diffusion_planner.loss.squared_error = true");
    no_use(loss + name, "2", "diffusion_planner.process.velocity = true");
  }
  no_use(loss + "time_weights", "[1, 2, 3, 4]", "diffusion_planner.loss.squared_error = true");
  no_use(loss + "integrated", "2", "diffusion_planner.process.velocity = false");
  no_use(loss + "integrated_window", "2", "diffusion_planner.process.velocity = false");
  no_use(loss + "border_margin", "2", "diffusion_planner.loss.road_border = 0.0");
  no_use(loss + "vehicle_margin", "2", "diffusion_planner.loss.collision = 0.0");
  no_use(loss + "exploding_heading_gradient", "true", "diffusion_planner.loss.road_border = 0.0");
  no_use(loss + "unchanged_turn", "0.5", "diffusion_planner.loss.turn_indicator = 0.0");
  no_use(loss + "ego_horizon", "8", "diffusion_planner.loss.ego = 0.0");
  no_use(augmentation + "yaw", "0.1", "diffusion_planner.augmentation.probability = 0.0");
  no_use("diffusion_planner.oldest_ego_history", "true", "diffusion_planner.use_ego_history = false");
  no_use(augmentation + "rebuilt", "10", "diffusion_planner.augmentation.probability = 0.0");

  CHECK(
      refusal({"diffusion_planner.hidden_dim=17"})
          .starts_with(
              "--set diffusion_planner.hidden_dim=17: diffusion_planner.hidden_dim = 17 is not divisible by "
              "diffusion_planner.num_heads = 2; set diffusion_planner.hidden_dim = "));
  CHECK(refusal({augmentation + "rebuilt=80"}) ==
        "--set diffusion_planner.augmentation.rebuilt=80: diffusion_planner.augmentation.rebuilt = 80 is not "
        "within the future; "
        "allowed: [2, 79] with diffusion_planner.future_len = 80");
  CHECK(refusal({"diffusion_planner.process.max_delay=80"}) ==
        "--set diffusion_planner.process.max_delay=80: diffusion_planner.process.max_delay = 80 may give the "
        "ego's whole future as "
        "truth; allowed: [0, 79] with diffusion_planner.future_len = 80");
  CHECK(refusal({loss + "ego=0", loss + "neighbor=0", loss + "turn_indicator=0", loss + "road_border=0"}) ==
        "--set diffusion_planner.loss.ego=0: every term of [diffusion_planner.loss] has weight 0; set "
        "diffusion_planner.loss.ego above 0, "
        "which is the usual one");
  CHECK(
      refusal({"train.sample_every=2", "sample.frames=0"}) ==
      "--set train.sample_every=2: train.sample_every = 2 has no use with sample.frames = 0, which draws no "
      "samples; remove it, or raise sample.frames");
  CHECK(
      refusal({"sample.ema=false", "sample.frames=0"}) ==
      "--set sample.ema=false: sample.ema = false has no use with sample.frames = 0, which draws no samples; "
      "remove it, or raise sample.frames (dit-sample --raw draws with the raw weights)");
  const std::string up =
      "[train]\nmodel = \"diffusion_planner\"\nsteps = 1\n[diffusion_planner]\npreset = \"UP\"\n";
  const auto up_refusal = [&](const std::string& setting) {
    return error_text<ConfigError>([&] { parse_config(up, "up.toml", {setting}); });
  };
  CHECK(up_refusal("diffusion_planner.augmentation.smooth=true") ==
        "--set diffusion_planner.augmentation.smooth=true: frames of diffusion_planner.preset = \"UP\" do "
        "not tell the ego's "
        "shape, "
        "which the augmentation needs; set diffusion_planner.augmentation.probability = 0.0 and "
        "set diffusion_planner.augmentation.smooth = false");
  CHECK(up_refusal("diffusion_planner.loss.collision=1") ==
        "--set diffusion_planner.loss.collision=1: diffusion_planner.loss.collision has no use with "
        "diffusion_planner.preset = \"UP\"; "
        "remove "
        "it, or change diffusion_planner.preset");
  CHECK(up_refusal("diffusion_planner.process.max_delay=3")
            .find("has no use with diffusion_planner.process.prefix = false") != std::string::npos);
}

TEST_CASE("diffusion_planner run: held-out frames that cannot be read are told of, and lose no training") {
  const HeldOutFrames held_out;
  DrivingWorld skipping, ending, refusing;
  const RunResult result =
      skipping.run(loaded_with({"data.held_out=" + held_out.one_and_bad, "data.on_corrupt=skip"}));
  CHECK(result.held_out == 1);
  CHECK(skipping.listener.heard("skipped 1 corrupt file:"));
  CHECK(std::any_of(skipping.listener.messages.begin(), skipping.listener.messages.end(),
                    [&](const std::string& line) { return line.starts_with("  " + held_out.bad + ": "); }));
  CHECK(skipping.files.read("out/log.jsonl").find("\"skipped\":1") != std::string::npos);

  const std::string error =
      error_text<DataError>([&] { ending.run(loaded_with({"data.held_out=" + held_out.one_and_bad})); });
  CHECK(error.starts_with(held_out.bad + ": "));
  CHECK(error.ends_with(
      "; what was trained is saved as out/checkpoints/step-00000006, its validation was not measured"));
  CHECK(ending.files.exists("out/checkpoints/step-00000006/manifest.json"));
  const std::string log = ending.files.read("out/log.jsonl");
  CHECK(log.substr(log.rfind("{")).find("\"failed\"") != std::string::npos);
  CHECK(ending.files.exists("out/memory.json"));

  CHECK(error_text<ConfigError>([&] { refusing.run(loaded_with({"data.held_out=" + list})); }) ==
        "--set data.held_out=" + list + ": data.held_out = " + list +
            " names the frames that data.frames does, and is to be of others; hold some out, or leave "
            "data.held_out out");
}

TEST_CASE("diffusion_planner run: frames that are not named, and lists that are not there, are refused") {
  DrivingWorld world;
  CHECK(error_text<ConfigError>([&] { world.run(loaded_with({"data.frames=default"})); })
            .ends_with("data.frames is not set; train.model = \"diffusion_planner\" needs it: a folder of "
                       ".npz frames, or a JSON list of their paths"));
  CHECK(error_text<DataError>([&] {
          world.run(loaded_with({"data.frames=nowhere.json"}));
        }).starts_with("--set data.frames=nowhere.json: nowhere.json: "));
}

TEST_CASE("diffusion_planner run: its plan says to the byte what each phase takes on the CPU") {
  const PlanAccuracy compared = plan_accuracy(
      loaded_with({"data.held_out=" + list, "policies.precision.enabled=false", "train.validate_every=3"}),
      {});
  CHECK(compared.storages > 1000);
  const char* const of_solver[] = {"born: parameters trajectory smoothing,", "born: temporaries aten::all,",
                                   "born: temporaries aten::_to_copy,", "born: temporaries aten::gt,",
                                   "born: temporaries aten::le,"};
  // All peaks are equal. Of what is born and freed within one call, a plan leaves out what the linear solver
  // of the smoothing takes inside: to look its pivots over, less than a kilobyte; to make the inverses of the
  // build, two (T, T) float64 copies besides.
  constexpr int64_t pivots = 1024, inverses = 2 * 80 * 80 * 8;
  for (const PlanDifference& one : compared.differences) {
    INFO(one.phase << ", " << one.what << ": planned " << one.predicted << ", measured " << one.measured);
    CHECK(std::any_of(std::begin(of_solver), std::end(of_solver),
                      [&](const char* what) { return one.what.starts_with(what); }));
    CHECK(one.measured > one.predicted);
    CHECK(one.measured - one.predicted < pivots + (one.phase == "build" ? inverses : 0));
  }

  const PlanAccuracy without =
      plan_accuracy(loaded_with({"data.held_out=" + list, "policies.precision.enabled=false",
                                 "train.validate_every=3", "diffusion_planner.augmentation.smooth=false"}),
                    {});
  for (const PlanDifference& one : without.differences)
    UNSCOPED_INFO(one.phase << ", " << one.what << ": planned " << one.predicted << ", measured "
                            << one.measured);
  CHECK(without.differences.empty());
}

}  // namespace dtk
