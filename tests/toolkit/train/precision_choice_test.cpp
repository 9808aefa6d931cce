// bf16 or fp32 on this CPU: decided once, by a clock, and nothing else notices.
#include "toolkit/train/precision_choice.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/report.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>

#include "support/catch.h"
#include "support/files/memory_file_system.h"
#include "support/runs/image_run.h"
#include "support/runs/tiny_run.h"
#include "toolkit/checkpoint/manifest.h"
#include "toolkit/device/device.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/run/run.h"
#include "toolkit/train/trainer.h"
#include "toolkit/train/trial_step.h"

using namespace dtk;
using policies::Enabled;

namespace {

/// Time passes only by work: between two looks it advances by what a step costs whose operators saw bf16, or
/// by what one costs whose operators did not.
class WorkClock final : public Clock {
 public:
  WorkClock(double bf16_seconds, double fp32_seconds)
      : bf16_seconds_(bf16_seconds), fp32_seconds_(fp32_seconds) {
    work_ = bf16_work_ = false;
    callback_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&see).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~WorkClock() override { at::removeCallback(callback_); }
  double seconds() override {
    if (++looks == throw_at) throw std::runtime_error("the clock is broken");
    if (work_) now_ += bf16_work_ ? bf16_seconds_ : fp32_seconds_;
    work_ = bf16_work_ = false;
    return now_;
  }

  int looks = 0, throw_at = -1;

 private:
  static std::unique_ptr<at::ObserverContext> see(const at::RecordFunction& fn) {
    work_ = true;
    for (const c10::IValue& input : fn.inputs()) {
      if (input.isTensor() && input.toTensor().defined() && input.toTensor().scalar_type() == at::kBFloat16)
        bf16_work_ = true;
    }
    return nullptr;
  }
  static thread_local bool work_, bf16_work_;
  const double bf16_seconds_, fp32_seconds_;
  double now_ = 0;
  at::CallbackHandle callback_;
};
thread_local bool WorkClock::work_ = false, WorkClock::bf16_work_ = false;

constexpr double kTick = 1.0 / 1024;  // seconds, of which no sum is rounded: equal steps take equal times

LoadedConfig tiny() {
  LoadedConfig loaded;
  loaded.config = test::tiny_config();
  dit::options_of(loaded.config).data.images = dit::options_of(loaded.config).data.labels = "made up";
  return loaded;
}

std::string decide(LoadedConfig& loaded, Clock& clock, const LoadedConfig* resumed = nullptr,
                   c10::Device device = at::kCPU) {
  const policies::SavedTensorEngineGuard engine;
  return decide_precision(loaded, device, clock, resumed);
}

/// All of LibTorch's and this project's state that a step may touch.
struct AmbientState {
  std::string random = policies::generator_state(at::globalContext().defaultGenerator(at::kCPU));
  bool grad = at::GradMode::is_enabled();
  bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
  bool layers = policies::SavedTensorStack::current().empty();
  std::string path = policies::module_path();
  int threads = at::get_num_threads();
  int64_t bytes = policies::cpu_accounts().live_bytes();
  friend bool operator==(const AmbientState&, const AmbientState&) = default;
};

}  // namespace

TEST_CASE("precision choice: the faster one is taken, with its figures as the origin") {
  const bool faster = GENERATE(true, false);
  CAPTURE(faster);
  WorkClock clock(faster ? 0.010 : 0.030, 0.020);
  LoadedConfig loaded = tiny();
  const std::string figures =
      faster ? "measured: bf16 10.0 ms, fp32 20.0 ms a step (fastest of 15; bf16 ahead in 15)"
             : "measured: bf16 30.0 ms, fp32 20.0 ms a step (fastest of 15; bf16 ahead in 0)";
  const std::string taken = faster ? "bf16" : "fp32";
  CHECK(decide(loaded, clock) == "precision on this CPU, " + figures + "; taken: " + taken);
  CHECK(loaded.config.policies.precision.cpu == policies::parse_enum<policies::CpuPrecision>(taken));
  CHECK(loaded.config.policies.precision.enabled == Enabled::by_default);
  CHECK(text_of(loaded.origins.at("policies.precision.cpu")) == figures);
  CHECK_THAT(print_config(loaded), Catch::Contains("\ncpu = \"" + taken + "\"  # " + figures + "\n"));
}

TEST_CASE("precision choice: where bf16 is hopeless one sample shows it") {
  WorkClock clock(1.0, 0.1);
  LoadedConfig loaded = tiny();
  CHECK(decide(loaded, clock) ==
        "precision on this CPU, measured: bf16 1000.0 ms, fp32 100.0 ms a step of one sample (fastest of 1; "
        "bf16 ahead in 0); taken: fp32");
  CHECK(clock.looks < 12);  // two pairs
}

TEST_CASE("precision choice: bf16 that is faster by less than the margin is fp32, and the line says so") {
  WorkClock clock(0.0175, 0.020);
  LoadedConfig loaded = tiny();
  CHECK_THAT(decide(loaded, clock),
             Catch::EndsWith("; taken: fp32, as bf16 has to be 15 % faster, and ahead in 4 of 5 pairs"));
  CHECK(loaded.config.policies.precision.cpu == policies::CpuPrecision::fp32);
}

TEST_CASE("precision choice: slow steps end the measurement early") {
  WorkClock clock(1.0, 2.0);
  LoadedConfig loaded = tiny();
  CHECK(decide(loaded, clock) ==
        "precision on this CPU, measured: bf16 1000.0 ms, fp32 2000.0 ms a step (fastest of 1; bf16 ahead in "
        "1); taken: bf16");
}

TEST_CASE("precision choice: a decision that was saved is not made again") {
  WorkClock clock(0.010, 0.020);
  LoadedConfig loaded = tiny();
  decide(loaded, clock);
  LoadedConfig again = parse_config(print_config(loaded), "out/config.toml", {});
  const LoadedConfig before = again;
  const int looks = clock.looks;
  CHECK(decide(again, clock) == "");
  CHECK(clock.looks == looks);
  CHECK(again.config == loaded.config);
  CHECK((again.origins == before.origins));
}

TEST_CASE("precision choice: nothing is measured where there is nothing to decide") {
  WorkClock clock(0.010, 0.020);
  LoadedConfig loaded = tiny();
  c10::Device device = at::kCPU;
  SECTION("asked for") {
    loaded.config.policies.precision.enabled = Enabled::on;
  }
  SECTION("switched off") {
    loaded.config.policies.precision.enabled = Enabled::off;
  }
  SECTION("bf16 by name") {
    loaded.config.policies.precision.cpu = policies::CpuPrecision::bf16;
  }
  SECTION("fp32 by name") {
    loaded.config.policies.precision.cpu = policies::CpuPrecision::fp32;
  }
  SECTION("another device") {
    device = at::kMeta;
  }
  const RunConfig before = loaded.config;
  CHECK(decide(loaded, clock, nullptr, device) == "");
  CHECK(clock.looks == 0);
  CHECK(loaded.config == before);
  CHECK(loaded.origins.empty());
}

TEST_CASE("precision choice: on resume the checkpoint's decision stands") {
  WorkClock clock(0.010, 0.020);
  LoadedConfig loaded = tiny();
  LoadedConfig resumed = loaded;
  resumed.config.policies.precision.cpu = policies::CpuPrecision::fp32;  // the clock would say bf16
  const auto device = GENERATE(c10::Device(at::kCPU), c10::Device(at::kMeta));
  SECTION("with its figures") {
    resumed.origins["policies.precision.cpu"] = {Origin::Source::measured,
                                                 "bf16 2.0 ms, fp32 1.0 ms a step (fastest of 7)"};
    CHECK(decide(loaded, clock, &resumed, device) == "");
    CHECK((loaded.origins == resumed.origins));
  }
  SECTION("written by hand") {
    resumed.origins["policies.precision.cpu"] = {Origin::Source::file,
                                                 "base.toml:3"};  // says something else by now
    CHECK(decide(loaded, clock, &resumed, device) == "");
    CHECK(text_of(loaded.origins.at("policies.precision.cpu")) == "the checkpoint's");
  }
  CHECK(clock.looks == 0);
  CHECK(loaded.config.policies.precision.cpu == policies::CpuPrecision::fp32);

  LoadedConfig undecided = tiny();
  resumed.config.policies.precision.cpu = policies::CpuPrecision::probe;
  decide(undecided, clock, &resumed);
  CHECK(undecided.config.policies.precision.cpu == policies::CpuPrecision::bf16);
}

namespace {

/// Tensors that are large beside what the program needs to clean up after one did not fit.
LoadedConfig wide() {
  LoadedConfig loaded = tiny();
  dit::options_of(loaded.config).model.hidden = 64;
  dit::options_of(loaded.config).model.patch = 1;
  loaded.config.policies.checkpoint.enabled = Enabled::off;
  return loaded;
}

/// Of a trial step, with the model, as the measurement makes it.
int64_t peak_of(Enabled bf16) {
  const policies::SavedTensorEngineGuard engine;
  const policies::CountingAllocatorGuard counting;
  const RunConfig config = wide().config;
  policies::PolicyOptions options = config.policies;
  options.precision.enabled = bf16;
  policies::cpu_accounts().reset_phases("build");
  const auto model = make_model(config, at::kCPU, policies::make_generator(at::kCPU, 1));
  TrialStep(config, *model, options, config.data.batch / config.train.accumulate).run();
  return policies::highest(policies::cpu_accounts().phases()).peak.bytes;
}

}  // namespace

TEST_CASE("precision choice: what does not fit memory.budget is not taken") {
  const int64_t fp32 = peak_of(Enabled::off), bf16 = peak_of(Enabled::on);
  const int64_t low = std::min(fp32, bf16), high = std::max(fp32, bf16);
  REQUIRE(high - low > 100'000);
  WorkClock clock(fp32 < bf16 ? 0.010 : 0.030, 0.020);  // the one that needs more is faster
  const auto within = [&](int64_t bytes) {
    LoadedConfig loaded = wide();
    loaded.config.memory.budget = ByteSize{bytes};
    const std::string line = decide(loaded, clock);
    const std::string taken = policies::text_of(loaded.config.policies.precision.cpu);
    const std::string measured = text_of(loaded.origins.at("policies.precision.cpu"));
    const bool slow =
        taken == "bf16" && !cpu_has_bf16() && measured.find("does not fit") != std::string::npos;
    CHECK(line == "precision on this CPU, " + measured + "; taken: " + taken);
    CHECK(loaded.notes.size() == (slow ? 1 : 0));
    return taken + ", " + measured;
  };
  const std::string larger = fp32 < bf16 ? "bf16" : "fp32", smaller = fp32 < bf16 ? "fp32" : "bf16";
  CHECK_THAT(within(high), Catch::StartsWith(larger + ", measured: bf16 "));
  CHECK(within((low + high) / 2) ==
        smaller + ", measured: a step in " + larger + " does not fit memory.budget");
  CHECK(within(low - 100'000) == "fp32, measured: a step fits memory.budget in neither bf16 nor fp32");
  CHECK(within(1000) == "fp32, measured: not even the model fits");
  CHECK(policies::cpu_accounts().live_bytes() == 0);
}

TEST_CASE("precision choice: random state, gradients and thread state are untouched, and no byte stays") {
  const policies::CountingAllocatorGuard counting;
  const int64_t throw_at = GENERATE(-1, 2, 5);  // the clock throws before a step, after one, or never
  CAPTURE(throw_at);
  test::SteppingClock still;
  Trainer trainer(test::tiny_config(), at::kCPU, test::tiny_data(), still);
  trainer.step();
  at::manual_seed(11);
  std::vector<at::Tensor> weights;
  for (const auto& [name, parameter] : trainer.model().parameters()) weights.push_back(parameter.clone());
  const auto live_without_batches = [] {  // the loader's thread may be one batch ahead
    return policies::cpu_accounts().live().of(policies::Category::data);
  };
  LoadedConfig loaded = tiny();
  {
    WorkClock clock(0.010, 0.020);
    clock.throw_at = static_cast<int>(throw_at);
    AmbientState before, after;
    before.bytes -= live_without_batches();
    if (throw_at < 0) {
      decide(loaded, clock);
    } else {
      CHECK_THROWS_WITH(decide(loaded, clock), "the clock is broken");
      CHECK(loaded.config == tiny().config);
    }
    after = {};
    after.bytes -= live_without_batches();
    CHECK((after == before));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto& [name, parameter] = trainer.model().parameters()[i];
    INFO(name);
    CHECK_FALSE(parameter.grad().defined());
    CHECK(at::equal(parameter, weights[i]));
  }
}

TEST_CASE("precision choice: an end that does not exist is refused before anything is timed") {
  WorkClock clock(0.010, 0.020);
  LoadedConfig loaded = tiny();
  loaded.config.policies.precision.fp32 = {"final"};
  CHECK_THROWS_WITH(decide(loaded, clock),
                    Catch::StartsWith("policies.precision.fp32: \"final\" matches no module"));
  CHECK(clock.looks == 0);
}

namespace {

struct Listener final : RunObserver {
  void message(const std::string& text) override { messages.push_back(text); }
  void progress(const Progress&) override {}
  void working(const std::string&, int64_t, int64_t) override {}
  std::vector<std::string> messages;
};

struct ChoiceWorld {
  RunResult run(const LoadedConfig& loaded, const std::filesystem::path& resume = {}) {
    listener.messages.clear();
    return run_training(loaded, at::kCPU, resume, test::images_of(loaded, test::tiny_data()),
                        {files, clock, listener, nullptr});
  }
  int measured() const {
    return static_cast<int>(std::count_if(
        listener.messages.begin(), listener.messages.end(),
        [](const std::string& text) { return text.starts_with("precision on this CPU, measured: "); }));
  }
  test::MemoryFileSystem files;
  test::SteppingClock clock{kTick};
  Listener listener;
};

}  // namespace

TEST_CASE("precision choice: the saved configuration of a run holds it, and gives the same run again") {
  ChoiceWorld world;
  LoadedConfig loaded = tiny();
  loaded.config.train.out = "out";
  loaded.config.train.checkpoint_every = 8;
  world.run(loaded);
  CHECK(world.measured() == 1);
  const std::string saved = world.files.read("out/config.toml");
  CHECK(world.files.read("out/checkpoints/step-00000020/config.toml") == saved);
  CHECK_THAT(saved,
             Catch::Contains("\n[policies.precision]\nenabled = \"default\"\ncpu = \"fp32\"  # measured: "
                             "bf16 1.0 ms, fp32 1.0 ms a step (fastest of 15; bf16 ahead in 0)\n"));
  for (const std::string policy : {"attention", "fusion", "ema", "checkpoint"}) {
    INFO(policy);
    CHECK_THAT(saved, Catch::Contains("\n[policies." + policy + "]\nenabled = \"default\"\n"));
  }
  CHECK(world.listener.messages.front() == "trying some steps in fp32 and in bf16, to take the faster");
  CHECK(world.listener.messages.at(1) == saved);
  const auto heard_the_figures = [&] {
    const auto& all = world.listener.messages;
    return std::count(
        all.begin(), all.end(),
        "policy precision: off, fp32, measured: bf16 1.0 ms, fp32 1.0 ms a step (fastest of 15; "
        "bf16 ahead in 0)");
  };
  CHECK(heard_the_figures() == 1);

  const double now = world.clock.seconds();
  CHECK_THROWS_WITH(world.run(loaded), Catch::StartsWith("out already holds a run"));
  CHECK(world.clock.seconds() == Approx(now + kTick));  // refused before anything was timed

  RunConfig expected = loaded.config;
  expected.policies.precision.cpu = policies::CpuPrecision::fp32;
  CHECK(parse_config(saved, "out/config.toml", {}).config == expected);
  world.run(parse_config(saved, "out/config.toml", {"train.out=again"}));
  CHECK(world.measured() == 0);
  const std::string model = "/checkpoints/step-00000020/model.safetensors";
  CHECK(world.files.read("again" + model) == world.files.read("out" + model));

  loaded.config.train.out = "branch";
  world.run(loaded, "out/checkpoints/step-00000016");
  CHECK(world.measured() == 0);
  CHECK(world.files.read("branch" + model) == world.files.read("out" + model));
  CHECK(heard_the_figures() == 1);
  CHECK_THAT(world.files.read("branch/config.toml"),
             Catch::Contains("\ncpu = \"fp32\"  # measured: bf16 1.0 ms, fp32 1.0 ms a step (fastest of 15; "
                             "bf16 ahead in 0)\n"));
}

TEST_CASE("precision choice: a checkpoint without origins.json, of an older version, is continued") {
  ChoiceWorld world;
  LoadedConfig loaded = tiny();
  loaded.config.train.out = "out";
  loaded.config.train.checkpoint_every = 8;
  world.run(loaded);
  const std::string older = "out/checkpoints/step-00000016", file = older + "/manifest.json";
  CheckpointManifest manifest = parse_manifest(world.files.read(file), file);
  REQUIRE(std::erase_if(manifest.files, [](const auto& entry) { return entry.name == "origins.json"; }) == 1);
  write_file_atomically(world.files, file, manifest_text(manifest));
  world.files.remove_all(older + "/origins.json");

  loaded.config.train.out = "branch";
  world.run(loaded, older);
  CHECK(world.measured() == 0);
  CHECK_THAT(world.files.read("branch/config.toml"),
             Catch::Contains("\ncpu = \"fp32\"  # the checkpoint's\n"));
  const std::string model = "/checkpoints/step-00000020/model.safetensors";
  CHECK(world.files.read("branch" + model) == world.files.read("out" + model));
}
