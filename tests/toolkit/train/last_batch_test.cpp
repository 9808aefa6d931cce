// data.drop_last = false: the last, shorter step of an epoch is trained, exactly.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include <set>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "support/runs/flow_batch.h"
#include "support/runs/trainer_state.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/families/dit/data.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/train/save_load.h"

using namespace dtk;
using test::check_equal, test::run;

namespace {

// 22 samples in steps of 8, micro-batches of 4: the third step of an epoch has 6 samples, 4 and 2.
constexpr int64_t sample_count = 22;

RunConfig with_last_batch() {
  RunConfig config = test::tiny_config();
  config.data.drop_last = false;
  return config;
}

std::unique_ptr<Trainer> trainer_of(const RunConfig& config, Clock& clock, int64_t count = sample_count) {
  const RunData data = dit::image_data(config, test::tiny_data(count));
  return std::make_unique<Trainer>(config, at::kCPU, data.split.training, clock);
}

}  // namespace

TEST_CASE("last batch: every sample is trained once an epoch") {
  test::SteppingClock clock;
  const auto trainer = trainer_of(with_last_batch(), clock);
  std::vector<int64_t> seen;
  for (int i = 0; i < 7; ++i) {
    trainer->step();
    seen.push_back(trainer->samples());
  }
  CHECK(seen == std::vector<int64_t>{8, 16, 22, 30, 38, 44, 52});
}

TEST_CASE("last batch: where the batches fill the epochs nothing changes") {
  test::SteppingClock clock;
  const auto with = trainer_of(with_last_batch(), clock, 24),
             without = trainer_of(test::tiny_config(), clock, 24);
  run(*with, 7);
  run(*without, 7);
  check_equal(*with, *without);
}

namespace {

// The gradient of the mean loss over the samples that a trainer takes in its step number `step`, in one pass.
void step_of_one_pass(const RunConfig& config, Trainer& trainer, int step) {
  Loader loader(test::tiny_data(sample_count),
                {.seed = stream_seed(config.train.seed, "data"), .batch = 4, .drop_last = false});
  for (int now = 0; now <= step; ++now) {
    test::FlowBatch parts;
    const int64_t end = loader.consumed() + loader.available(8);
    while (loader.consumed() < end) {
      const int64_t first = loader.consumed(), of_epoch = loader.samples_per_epoch();
      at::Generator noise = policies::make_generator(
          at::kCPU, seed_at(stream_seed(config.train.seed, "noise"), first / of_epoch, first % of_epoch));
      parts.add(loader.next(), noise);
    }
    if (now == step) parts.backward(trainer.model());
  }
}

}  // namespace

TEST_CASE("last batch: its gradient is that of the mean over its samples, however they are accumulated") {
  test::SteppingClock clock;
  RunConfig config = with_last_batch();
  dit::options_of(config).model.mlp_dropout = dit::options_of(config).model.class_dropout = 0;
  config.optimizer.lr = 1e-12;  // all steps see the same weights
  const auto accumulated = trainer_of(config, clock), whole = trainer_of(config, clock);
  for (const auto& trainer : {accumulated.get(), whole.get()}) {
    const at::NoGradGuard no_grad;
    at::Generator generator = policies::make_generator(at::kCPU, 7);
    for (const auto& [name, parameter] : trainer->model().parameters()) {
      if (parameter.requires_grad())
        at::Tensor(parameter).add_(at::randn(parameter.sizes(), generator) * 0.1);
    }
  }
  run(*accumulated, 2);
  accumulated->accumulate_gradients();
  CHECK(accumulated->samples() == sample_count);
  step_of_one_pass(config, *whole, 2);
  for (size_t i = 0; i < whole->model().parameters().size(); ++i) {
    const auto& [name, parameter] = whole->model().parameters()[i];
    if (!parameter.requires_grad()) continue;
    INFO(name);
    const at::Tensor expected = parameter.grad();
    const at::Tensor seen = accumulated->model().parameters()[i].second.grad();
    const double scale = expected.abs().max().item<double>();
    REQUIRE(scale > 0);
    CHECK((seen - expected).abs().max().item<double>() < 1e-4 * scale);
  }
  accumulated->optimizer().release_gradients();
  whole->optimizer().release_gradients();
}

TEST_CASE("last batch: the loss that is read weighs every sample alike") {
  test::SteppingClock clock;
  RunConfig config = with_last_batch();
  dit::options_of(config).model.mlp_dropout = dit::options_of(config).model.class_dropout = 0;
  config.optimizer.lr = 1e-12;
  const auto trainer = trainer_of(config, clock), by_step = trainer_of(config, clock);
  run(*trainer, 3);
  double sum = 0;
  for (const int64_t count : {8, 8, 6}) {
    by_step->step();
    sum += static_cast<double>(count) * by_step->read_scalars_sync().loss;
  }
  CHECK(trainer->read_scalars_sync().loss == Approx(sum / sample_count).epsilon(1e-5));
}

TEST_CASE("last batch: a resumed run is bit-equal, also right before and after it") {
  const policies::SavedTensorEngineGuard engine;
  RunConfig config = with_last_batch();
  dit::options_of(config).data.flip = true;
  test::SteppingClock clock;
  const auto whole = trainer_of(config, clock);
  run(*whole, 10);
  for (const int64_t stop : {2, 3, 4}) {
    INFO(stop);
    test::MemoryFileSystem files;
    CheckpointStore store(files, "checkpoints", 1);
    const auto first = trainer_of(config, clock);
    run(*first, stop);
    const auto folder = save_training(store, *first, {}, 1);
    const auto second = trainer_of(config, clock);
    load_training(open_checkpoint(files, folder), *second);
    run(*second, 10 - stop);
    check_equal(*whole, *second);
  }
}

TEST_CASE("last batch: its memory is counted in a phase of its own") {
  policies::CountingAllocatorGuard counting;
  policies::SavedTensorEngineGuard engine;
  policies::cpu_accounts().reset_phases("build");
  test::SteppingClock clock;
  const auto trainer = trainer_of(with_last_batch(), clock);
  const auto phases = [] {
    std::set<std::string> names;
    for (const policies::PhasePeak& phase : policies::cpu_accounts().phases()) {
      names.insert(phase.name);
      INFO(phase.name);
      CHECK(phase.peak.items().count(policies::Category::other) == 0);
    }
    return names;
  };
  run(*trainer, 2);
  CHECK(phases().count("last_batch") == 0);
  run(*trainer, 1);
  CHECK(phases() == std::set<std::string>{"build", "first_step", "forward", "backward", "optimizer", "ema",
                                          "last_batch"});
}

TEST_CASE("last batch: data of less than one batch are refused") {
  test::SteppingClock clock;
  CHECK(test::error_text<DataError>([&] { trainer_of(with_last_batch(), clock, 7); }) ==
        "data: 7 made up are fewer than data.batch = 8, so that every batch would be a short one; "
        "lower data.batch");
}

TEST_CASE("flips: a run with them is another run, and the same again with the same seed") {
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  const auto plain = trainer_of(config, clock);
  dit::options_of(config).data.flip = true;
  const auto one = trainer_of(config, clock), other = trainer_of(config, clock);
  for (const auto& trainer : {plain.get(), one.get(), other.get()}) run(*trainer, 4);
  check_equal(*one, *other);
  CHECK_FALSE(at::equal(plain->model().parameters()[1].second, one->model().parameters()[1].second));
}
