// A resumed run is bit-equal to an uninterrupted one, whatever the policies, and also where they change.
#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/report.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>
#include <functional>

#include "support/catch.h"
#include "support/files/counting_file_system.h"
#include "support/files/memory_file_system.h"
#include "support/runs/image_run.h"
#include "support/runs/tiny_run.h"
#include "support/runs/trainer_state.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/run/run.h"
#include "toolkit/train/save_load.h"

using namespace dtk;
using policies::Enabled;
using test::check_equal, test::make_trainer, test::run;

namespace {

struct Choice {
  const char* name;
  std::function<void(RunConfig&)> choose;
};

RunConfig chosen(const Choice& choice) {
  RunConfig config = test::tiny_config();
  choice.choose(config);
  return config;
}

const Choice plain = {"defaults", [](RunConfig&) {}};
const Choice bf16 = {"bf16",
                     [](RunConfig& config) { config.policies.precision.cpu = policies::CpuPrecision::bf16; }};
const Choice attention_off = {"attention off",
                              [](RunConfig& config) { config.policies.attention.enabled = Enabled::off; }};
const Choice checkpoint_on = {"checkpointing on",
                              [](RunConfig& config) { config.policies.checkpoint.enabled = Enabled::on; }};
const Choice checkpoint_off = {"checkpointing off",
                               [](RunConfig& config) { config.policies.checkpoint.enabled = Enabled::off; }};
const Choice ema_off = {"EMA off", [](RunConfig& config) { config.policies.ema.enabled = Enabled::off; }};
const Choice ema_every_three = {"EMA every 3", [](RunConfig& config) { config.policies.ema.every = 3; }};
const Choice epsilon = {"epsilon", [](RunConfig& config) { config = test::tiny_config("epsilon"); }};
const Choice all_of_them = {"bf16, attention off, checkpointing on, EMA every 3", [](RunConfig& config) {
                              bf16.choose(config);
                              attention_off.choose(config);
                              checkpoint_on.choose(config);
                              ema_every_three.choose(config);
                            }};

/// A checkpoint of a run of `config` after 13 steps: inside an epoch, and inside three steps of an average.
std::filesystem::path save_after_13(const RunConfig& config, test::MemoryFileSystem& files) {
  test::SteppingClock clock;
  CheckpointStore store(files, "checkpoints", 1);
  const auto first = make_trainer(config, clock);
  run(*first, 13);
  return save_training(store, *first, {}, 1);
}

void check_resumed(const RunConfig& before, const RunConfig& after, const RunConfig& uninterrupted) {
  test::SteppingClock clock;
  const auto whole = make_trainer(uninterrupted, clock);
  run(*whole, 20);
  test::MemoryFileSystem files;
  const auto folder = save_after_13(before, files);
  at::manual_seed(99);  // the program's own generator has no say
  const auto second = make_trainer(after, clock);
  load_training(open_checkpoint(files, folder), *second);
  CHECK(second->steps() == 13);
  run(*second, 7);
  check_equal(*whole, *second);
}

}  // namespace

TEST_CASE("a resumed run is bit-equal to an uninterrupted one, under all policies") {
  const policies::SavedTensorEngineGuard engine;
  for (const Choice& choice : {plain, bf16, attention_off, checkpoint_on, checkpoint_off, ema_off,
                               ema_every_three, epsilon, all_of_them}) {
    INFO(choice.name);
    const RunConfig config = chosen(choice);
    check_resumed(config, config, config);
  }
}

TEST_CASE("a run that is resumed with checkpointing switched on or off is bit-equal as well") {
  const policies::SavedTensorEngineGuard engine;
  const RunConfig on = chosen(checkpoint_on), off = chosen(checkpoint_off);
  SECTION("off to on") {
    check_resumed(off, on, off);
  }
  SECTION("on to off") {
    check_resumed(on, off, on);
  }
}

TEST_CASE("a run that is resumed with another batch goes on in its epoch where one begins") {
  const policies::SavedTensorEngineGuard engine;
  RunConfig config = test::tiny_config();
  config.data.batch = 8;
  test::MemoryFileSystem files;
  const auto folder =
      save_after_13(config, files);  // 13 batches of 8, of 8 an epoch: 40 samples into the second
  const auto resumed_at = [&](int64_t batch, int64_t accumulate, bool drop_last = true) {
    RunConfig other = config;
    other.data.batch = batch;
    other.train.accumulate = accumulate;
    other.data.drop_last = drop_last;
    test::SteppingClock clock;
    const auto trainer = make_trainer(other, clock);
    load_training(open_checkpoint(files, folder), *trainer);
    const int64_t samples = trainer->samples();
    run(*trainer, 2);
    CHECK(trainer->samples() == (drop_last ? samples + 2 * batch : 2 * 64));
    return samples;
  };
  CHECK(resumed_at(8, 1) == 64 + 40);
  CHECK(resumed_at(8, 2) == 64 + 40);
  CHECK(resumed_at(16, 1) == 64 + 48);  // of 16 the next begins at 48
  CHECK(resumed_at(16, 2) == 64 + 40);
  CHECK(resumed_at(20, 1) == 60 + 40);  // an epoch has three of 20
  CHECK(resumed_at(6, 1) == 60 + 42);
  CHECK(resumed_at(32, 1) == 64 + 64);  // none begins in what is left
  CHECK(resumed_at(20, 1, /*drop_last=*/false) == 64 + 40);
}

TEST_CASE("a checkpoint whose position no run of its batch has is refused") {
  const policies::SavedTensorEngineGuard engine;
  RunConfig config = test::tiny_config();
  test::SteppingClock clock;
  const auto trainer = make_trainer(config, clock);
  TrainingState state = trainer->state();
  state.samples = 3;
  CHECK_THROWS_AS(trainer->restore(state), std::invalid_argument);
}

TEST_CASE("the choices that change a result do change it") {
  test::SteppingClock clock;
  const policies::SavedTensorEngineGuard engine;
  const auto reference = make_trainer(chosen(plain), clock);
  run(*reference, 3);
  for (const Choice& choice : {bf16, attention_off}) {
    INFO(choice.name);
    const auto other = make_trainer(chosen(choice), clock);
    run(*other, 3);
    bool equal = true;
    for (size_t i = 0; i < reference->model().parameters().size(); ++i) {
      equal = equal &&
              at::equal(reference->model().parameters()[i].second, other->model().parameters()[i].second);
    }
    CHECK_FALSE(equal);
  }
}

TEST_CASE("an EMA that was off when the checkpoint was made cannot be continued") {
  test::SteppingClock clock;
  test::MemoryFileSystem files;
  const auto folder = save_after_13(chosen(ema_off), files);
  const auto trainer = make_trainer(chosen(plain), clock);
  CHECK_THROWS_WITH(load_training(open_checkpoint(files, folder), *trainer),
                    Catch::Contains("state.json: policies.ema: the state has no count of updates"));
}

namespace {

struct Silent final : RunObserver {
  void message(const std::string&) override {}
  void progress(const Progress&) override {}
  void working(const std::string&, int64_t, int64_t) override {}
};

RunResult run_whole(const RunConfig& config, FileSystem& files, const std::filesystem::path& resume = {}) {
  LoadedConfig loaded;
  loaded.config = config;
  dit::options_of(loaded.config).data.images = dit::options_of(loaded.config).data.labels = "made up";
  test::SteppingClock clock{0.001, /*waits_for_threads=*/true};  // peaks are compared to the byte
  Silent silent;
  return run_training(loaded, at::kCPU, resume, test::images_of(loaded, test::tiny_data()),
                      {files, clock, silent, nullptr});
}

}  // namespace

TEST_CASE(
    "loading a checkpoint takes nothing beside what it is loaded into, elsewhere one tensor at a time") {
  const policies::CountingAllocatorGuard counting;
  const policies::SavedTensorEngineGuard engine;
  test::SteppingClock clock;
  test::MemoryFileSystem files;
  RunConfig config = chosen(plain);
  dit::options_of(config).model.hidden = 64;
  const auto folder = save_after_13(config, files);
  const auto trainer = make_trainer(config, clock);
  const Checkpoint checkpoint = open_checkpoint(files, folder);
  trainer->wait_for_data();
  policies::MemoryAccounts& accounts = policies::cpu_accounts();
  const int64_t before = accounts.live_bytes();
  const auto max_beside = [&](const std::function<void()>& load) {
    accounts.reset_phases("load");
    load();
    trainer->wait_for_data();
    CHECK(accounts.live_bytes() == before);
    return policies::highest(accounts.phases()).peak.bytes - before;
  };
  CHECK(max_beside([&] { load_training(checkpoint, *trainer); }) == 0);

  std::vector<NamedTensor> parameters;
  int64_t largest = 0;
  for (const auto& [name, parameter] : trainer->model().parameters()) {
    parameters.push_back({name, parameter});
    largest = std::max(largest, static_cast<int64_t>(parameter.nbytes()));
  }
  std::vector<StoredTensor> stored = checkpoint.stored_tensors("model.safetensors");
  for (StoredTensor& one : stored) one.read_into = nullptr;  // as for another device
  CHECK(max_beside([&] { copy_by_name(stored, parameters, "model"); }) == largest);
}

TEST_CASE("runs: what a run fits into is enough for its resumption, whose peaks are the same") {
  RunConfig config = chosen(plain);
  dit::options_of(config).model.hidden = 64;
  config.train.accumulate = 1;
  config.train.checkpoint_every = 8;
  config.train.keep_checkpoints = 3;
  config.policies.precision.cpu = policies::CpuPrecision::fp32;
  dit::options_of(config).grid.per_class = 0;
  config.train.out = "whole";
  test::MemoryFileSystem files;
  const RunResult whole = run_whole(config, files);
  REQUIRE(whole.memory);
  const policies::PhasePeak peak = whole.memory->peak();
  config.train.out = "branch";
  config.memory.budget = ByteSize{peak.peak.bytes};
  const RunResult resumed = run_whole(config, files, "whole/checkpoints/step-00000008");
  CHECK(resumed.step == 20);
  CHECK(resumed.trained_steps == 12);
  REQUIRE(resumed.memory);
  CHECK(resumed.memory->peak().name != "build");
  CHECK(resumed.memory->peak().peak.bytes == peak.peak.bytes);
  CHECK((resumed.memory->peak().peak.items() == peak.peak.items()));
  // Nor does reading the checkpoint take anything beside what is built: each tensor is read into its place.
  const auto build = [](const RunResult& run) { return policies::phase_named(run.memory->phases, "build"); };
  REQUIRE(build(whole) != nullptr);
  REQUIRE(build(resumed) != nullptr);
  CHECK(build(resumed)->peak.bytes == build(whole)->peak.bytes);
}

TEST_CASE("runs: a resumption reads each byte of its checkpoint once to compare hashes and once to load it") {
  RunConfig config = chosen(plain);
  config.train.checkpoint_every = 8;
  config.policies.precision.cpu = policies::CpuPrecision::fp32;
  config.train.out = "whole";
  test::CountingFileSystem files;
  run_whole(config, files);
  files.remove_all("whole/checkpoints/step-00000020");
  config.train.out = GENERATE("branch", "whole");  // a run of its own, or the same goes on
  CAPTURE(config.train.out);
  files.start_counting_anew();
  const std::string checkpoint = "whole/checkpoints/step-00000016";
  CHECK(run_whole(config, files, checkpoint).trained_steps == 4);
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "ema.safetensors", "config.toml", "data.json"}) {
    const std::string name = checkpoint + "/" + file;
    INFO(name);
    CHECK(files.bytes_read(name) == 2 * files.size(name));
  }
  // Its number of threads is compared before anything is built.
  CHECK(files.bytes_read(checkpoint + "/state.json") == 3 * files.size(checkpoint + "/state.json"));
}

TEST_CASE("runs: --resume with other checkpointing continues bit for bit, in both directions") {
  const bool first_on = GENERATE(false, true);
  CAPTURE(first_on);
  RunConfig before = chosen(first_on ? checkpoint_on : checkpoint_off),
            after = chosen(first_on ? checkpoint_off : checkpoint_on);
  before.train.checkpoint_every = after.train.checkpoint_every = 8;
  before.policies.precision.cpu = after.policies.precision.cpu = policies::CpuPrecision::fp32;
  before.train.out = "whole", after.train.out = "branch";
  test::MemoryFileSystem files;
  run_whole(before, files);
  CHECK(run_whole(after, files, "whole/checkpoints/step-00000016").step == 20);
  for (const char* file : {"model", "optimizer", "ema"}) {
    const std::string name = std::string("/checkpoints/step-00000020/") + file + ".safetensors";
    INFO(name);
    CHECK(files.read("branch" + name) == files.read("whole" + name));
  }
  CHECK(files.read("branch/samples/step-00000020.png") == files.read("whole/samples/step-00000020.png"));
}
