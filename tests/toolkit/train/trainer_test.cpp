// The training step: it repeats, shares the process, reads no value, and owns its memory.
#include "toolkit/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "support/catch.h"
#include "support/device/replay.h"
#include "support/runs/flow_batch.h"
#include "support/runs/tiny_run.h"
#include "support/runs/trainer_state.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/plan/null_world.h"

using namespace dtk;
using test::check_equal, test::everything, test::make_trainer, test::run;

namespace {

struct NanImages final : ImageSource {
  NanImages() : ImageSource({.size = 64, .channels = 1, .height = 8, .width = 8, .classes = 4}) {}
  std::string description() const override { return "one NaN per image after the first 16 images read"; }
  int64_t read_image(int64_t, float* values) const override {
    std::fill(values, values + 64, 0.5f);
    if (++reads > 16) values[3] = std::numeric_limits<float>::quiet_NaN();
    return 1;
  }
  mutable std::atomic<int> reads{0};
};

}  // namespace

TEST_CASE("the same configuration trains the same weights; another seed does not") {
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  const auto a = make_trainer(config, clock), b = make_trainer(config, clock);
  run(*a, 5);
  run(*b, 5);
  check_equal(*a, *b);
  config.train.seed = 1;
  const auto c = make_trainer(config, clock);
  run(*c, 5);
  CHECK_FALSE(at::equal(a->model().parameters()[1].second, c->model().parameters()[1].second));
}

namespace {

// The first `micro_batches` that a run with accumulation draws, of its weights: one batch's gradient.
struct BigBatch {
  test::FlowBatch parts;
  BigBatch(const RunConfig& config, int64_t micro_batches) {
    const int64_t size = config.data.batch / config.train.accumulate;
    Loader loader(test::tiny_data(), {.seed = stream_seed(config.train.seed, "data"), .batch = size});
    for (int64_t i = 0; i < micro_batches; ++i) {
      at::Generator noise =
          policies::make_generator(at::kCPU, seed_at(stream_seed(config.train.seed, "noise"), 0, i * size));
      parts.add(loader.next(), noise);
    }
  }
  // One step of `trainer` with the gradient of the mean over all samples.
  void step(Trainer& trainer) const {
    parts.backward(trainer.model());
    trainer.optimizer().step(trainer.learning_rate());
    trainer.optimizer().release_gradients();
  }
};

// At initialisation the last layer is zero, and with it almost every gradient.
void make_every_gradient_count(Trainer& trainer) {
  at::NoGradGuard no_grad;
  at::Generator generator = policies::make_generator(at::kCPU, 7);
  for (const auto& [name, parameter] : trainer.model().parameters()) {
    if (parameter.requires_grad()) at::Tensor(parameter).add_(at::randn(parameter.sizes(), generator) * 0.1);
  }
}

// Of first moments, which after one step are the gradients times 1 - beta1, and of weights: the largest
// difference as a fraction of the largest value, over all tensors.
double largest_difference(const Trainer& a, const Trainer& b, const std::string& prefix) {
  const auto left = everything(a), right = everything(b);
  double largest = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!left[i].name.starts_with(prefix)) continue;
    const double scale = left[i].tensor.abs().max().item<double>();
    REQUIRE(scale > 0);
    largest = std::max(largest, (left[i].tensor - right[i].tensor).abs().max().item<double>() / scale);
  }
  return largest;
}

}  // namespace

TEST_CASE("accumulated micro-batches give the gradient of one batch of all their samples") {
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  dit::options_of(config).model.mlp_dropout = dit::options_of(config).model.class_dropout = 0;
  config.optimizer.eps = 1.0;  // a step without it is the sign of a gradient, however small
  config.optimizer.clip = 0;
  config.schedule.warmup = 0;
  const auto accumulated = make_trainer(config, clock), whole = make_trainer(config, clock),
             half = make_trainer(config, clock);
  for (const auto& trainer : {accumulated.get(), whole.get(), half.get()})
    make_every_gradient_count(*trainer);
  accumulated->step();
  BigBatch(config, 2).step(*whole);
  BigBatch(config, 1).step(*half);
  // Only the order of fp32 sums differs.
  CHECK(largest_difference(*accumulated, *whole, "exp_avg.") < 1e-5);
  CHECK(largest_difference(*accumulated, *whole, "model.") < 1e-6);
  // What a trainer that forgets a micro-batch would do is far away.
  CHECK(largest_difference(*accumulated, *half, "exp_avg.") > 0.1);
  CHECK(largest_difference(*accumulated, *half, "model.") > 1e-4);
}

TEST_CASE("what a micro-batch draws follows from its place, whatever steps and micro-batches came before") {
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  config.optimizer.lr = 1e-12;  // all steps see the same weights
  dit::options_of(config).model.mlp_dropout = 0.2;
  const auto losses = [&](int64_t accumulate, int64_t steps) {
    config.train.accumulate = accumulate;
    config.data.batch = 4 * accumulate;
    const auto trainer = make_trainer(config, clock);
    make_every_gradient_count(*trainer);
    double sum = 0;
    for (int64_t i = 0; i < steps; ++i) {
      trainer->step();
      sum += trainer->read_scalars_sync().loss;
    }
    return sum / static_cast<double>(steps);
  };
  const double of_two_steps = losses(1, 2), of_one_step = losses(2, 1);
  CHECK(of_one_step == Approx(of_two_steps).epsilon(1e-6));
  config.train.seed = 1;
  CHECK(losses(2, 1) != Approx(of_one_step).epsilon(1e-3));
}

TEST_CASE("two trainers in one process do not disturb each other") {
  test::SteppingClock clock;
  const RunConfig config = test::tiny_config();
  RunConfig other = config;
  other.train.seed = 5;
  dit::options_of(other).model.hidden = 32;
  const auto alone = make_trainer(config, clock), other_alone = make_trainer(other, clock);
  run(*alone, 6);
  run(*other_alone, 6);
  const auto a = make_trainer(config, clock), b = make_trainer(other, clock);
  for (int i = 0; i < 6; ++i) {
    a->step();
    b->step();
    if (i == 3) b->sample();
  }
  check_equal(*alone, *a);
  check_equal(*other_alone, *b);
}

TEST_CASE("once a gradient is not finite, no later step changes a weight") {
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  config.policies.ema.enabled = policies::Enabled::off;
  Trainer trainer(config, at::kCPU, std::make_shared<NanImages>(), clock);
  run(trainer, 2);  // 16 good images
  CHECK(trainer.read_scalars_sync().finite);
  std::vector<at::Tensor> before;
  for (const NamedTensor& entry : everything(trainer)) before.push_back(entry.tensor.clone());
  run(trainer, 3);
  const StepScalars scalars = trainer.read_scalars_sync();
  CHECK_FALSE(scalars.finite);
  CHECK(std::isnan(scalars.loss));
  const auto after = everything(trainer);
  for (size_t i = 0; i < after.size(); ++i) {
    INFO(after[i].name);
    CHECK(at::equal(before[i], after[i].tensor));
  }
}

namespace {

int gradients_of(const Trainer& trainer) {
  int count = 0;
  for (const auto& [name, parameter] : trainer.model().parameters()) count += parameter.grad().defined();
  return count;
}

}  // namespace

TEST_CASE("a step that throws leaves no gradient for the next one to add to") {
  test::SteppingClock clock;
  const auto trainer = make_trainer(test::tiny_config(), clock);
  trainer->step();
  int block = 0, gradients_then = -1;
  const auto run_module = trainer->model().seam().run;
  trainer->model().seam().run = [&, run_module](std::string_view path, const auto& fn, auto&& inputs) {
    if (path == "blocks.1" && ++block == 2) {  // in the second of two micro-batches
      gradients_then = gradients_of(*trainer);
      throw std::runtime_error("no more");
    }
    return run_module(path, fn, std::move(inputs));
  };
  CHECK_THROWS_WITH(trainer->step(), "no more");
  CHECK(gradients_then > 20);
  CHECK(gradients_of(*trainer) == 0);
  CHECK(trainer->steps() == 1);
  trainer->step();
  CHECK(trainer->steps() == 2);
  trainer->accumulate_gradients();
  CHECK(gradients_of(*trainer) > 20);  // whoever takes the two halves gets them
  trainer->optimizer().release_gradients();
}

// Names of operators that bring a tensor's value to the host, seen outside the fused update, whose CPU kernel
// reads its own step count.
namespace {
std::set<std::string> reads;
int updates_open = 0;
std::unique_ptr<at::ObserverContext> see(const at::RecordFunction& fn) {
  const std::string name = fn.name();
  if (name == "aten::_fused_adamw_") ++updates_open;
  const bool read = name == "aten::item" || name == "aten::_local_scalar_dense" ||
                    name == "aten::is_nonzero" || name == "aten::equal" || name == "aten::nonzero";
  if (read && updates_open == 0) reads.insert(name);
  return nullptr;
}
void unsee(const at::RecordFunction& fn, at::ObserverContext*) {
  if (std::string(fn.name()) == "aten::_fused_adamw_") --updates_open;
}
}  // namespace

TEST_CASE("a step reads no value of a tensor") {
  test::SteppingClock clock;
  for (const std::string& objective : test::objectives) {
    INFO(objective);
    const auto trainer = make_trainer(test::tiny_config(objective), clock);
    trainer->step();
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&see, &unsee).scopes({at::RecordScope::FUNCTION}));
    at::ones({1}).item<float>();
    CHECK(reads.count("aten::item") == 1);  // the net does catch
    reads.clear();
    trainer->step();
    CHECK(reads.empty());
    at::removeCallback(handle);
  }
}

TEST_CASE("a step of two ranks reads no value of a tensor either") {
  test::SteppingClock clock;
  PlannedRanks ranks(2);
  RunConfig config = test::tiny_config();
  config.train.accumulate = 2;
  Trainer trainer(config, at::kCPU, test::tiny_data(), clock, {}, &ranks);
  trainer.step();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&see, &unsee).scopes({at::RecordScope::FUNCTION}));
  trainer.step();
  CHECK(reads.empty());
  reads.clear();
  at::removeCallback(handle);
}

TEST_CASE(
    "of two ranks each has the moments and averages of its part, and every byte of a step has an owner") {
  policies::CountingAllocatorGuard counting;
  policies::SavedTensorEngineGuard engine;
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  config.train.accumulate = 2;
  int64_t all = 0, moments = 0, averages = 0;
  for (const int64_t rank : {0, 1}) {
    policies::cpu_accounts().reset_phases("build");
    PlannedRanks ranks(2, rank);
    Trainer trainer(config, at::kCPU, test::tiny_data(), clock, {}, &ranks);
    run(trainer, 3);
    trainer.read_scalars_sync();
    const policies::MemorySums live = policies::cpu_accounts().live();
    int64_t own = 0;
    for (const auto& [name, tensor] : trainer.shards().own()) own += static_cast<int64_t>(tensor.nbytes());
    all = trainer.parameter_count() * 4;
    CHECK(own < all);
    // Scalars, and a loss of each rank.
    CHECK(live.of(policies::Category::optimizer) == 2 * own + 3 * 4 + 4 + 2 * 4);
    CHECK(live.of(policies::Category::ema) == own);
    CHECK(live.of(policies::Category::gradients) == 0);
    moments += live.of(policies::Category::optimizer) - (3 * 4 + 4 + 2 * 4);
    averages += live.of(policies::Category::ema);
    for (const policies::PhasePeak& phase : policies::cpu_accounts().phases()) {
      INFO(phase.name);
      const auto items = phase.peak.items();
      const auto other = items.find(policies::Category::other);
      CHECK((other == items.end() ? std::string() : other->second.begin()->first) == "");
    }
  }
  CHECK(moments == 2 * all);  // each is held once
  CHECK(averages == all);
}

TEST_CASE("every byte of a step has an owner, and nothing temporary outlives the step") {
  const std::string objective = GENERATE("rectified_flow", "epsilon", "v", "x0");
  CAPTURE(objective);
  policies::CountingAllocatorGuard counting;
  policies::SavedTensorEngineGuard engine;
  policies::cpu_accounts().reset_phases("build");
  const int64_t before = policies::cpu_accounts().live_bytes();
  test::SteppingClock clock;
  const RunConfig config = test::tiny_config(objective);
  {
    const auto trainer = make_trainer(config, clock);
    run(*trainer, 3);
    trainer->read_scalars_sync();
    const policies::MemorySums live = policies::cpu_accounts().live();
    const int64_t weights = trainer->parameter_count() * 4;
    const int64_t position_table = 4 * 16 * 4,
                  diffusion_tables = objective == "rectified_flow" ? 0 : 1000 * 72;
    CHECK(live.of(policies::Category::parameters) == weights + position_table + diffusion_tables);
    CHECK(live.of(policies::Category::optimizer) == 2 * weights + 3 * 4 + 4);
    CHECK(live.of(policies::Category::ema) == weights);
    CHECK(live.of(policies::Category::gradients) == 0);
    CHECK(live.of(policies::Category::saved) == 0);
    CHECK(live.items().count(policies::Category::other) == 0);
    for (const policies::PhasePeak& phase : policies::cpu_accounts().phases()) {
      INFO(phase.name);
      const auto items = phase.peak.items();
      const auto other = items.find(policies::Category::other);
      // On failure this names the operator.
      CHECK((other == items.end() ? std::string() : other->second.begin()->first) == "");
      if (phase.name == "optimizer") CHECK(phase.peak.of(policies::Category::gradients) == weights);
      if (phase.name == "backward")
        CHECK(phase.peak.items().at(policies::Category::saved).count("blocks.1") == 1);
    }
  }
  CHECK(policies::cpu_accounts().live_bytes() == before);
}

TEST_CASE("replaying the event log of real steps gives the sums at every phase's peak") {
  policies::CountingAllocatorGuard counting;
  policies::SavedTensorEngineGuard engine;
  policies::MemoryAccounts& accounts = policies::cpu_accounts();
  accounts.reset_phases("build");
  const policies::MemorySums start = accounts.start_event_log();
  test::SteppingClock clock;
  const auto trainer = make_trainer(test::tiny_config(), clock);
  run(*trainer, 3);
  const auto phases = accounts.phases();
  const auto peaks = test::replay(start, 0, accounts.stop_event_log());
  REQUIRE(phases.size() == 6);  // build, first_step, ema, forward, backward, optimizer
  for (size_t i = 0; i < phases.size(); ++i) {
    INFO(phases[i].name);
    REQUIRE(peaks.count(i) == 1);
    CHECK(peaks.at(i).bytes == phases[i].peak.bytes);
    CHECK((peaks.at(i).items() == phases[i].peak.items()));
  }
}

TEST_CASE("live bytes do not grow over 1,000 steps") {
  policies::CountingAllocatorGuard counting;
  policies::SavedTensorEngineGuard engine;
  test::SteppingClock clock;
  const auto trainer = make_trainer(test::tiny_config(), clock);
  const auto live_without_batches = [] {
    const policies::MemorySums live = policies::cpu_accounts().live();
    return live.bytes - live.of(policies::Category::data);  // the loader's thread may be one batch ahead
  };
  run(*trainer, 3);
  const int64_t before = live_without_batches();
  run(*trainer, 1000);
  CHECK(live_without_batches() == before);
}

TEST_CASE("a run ends by steps or by the clock, whichever comes first") {
  RunConfig config = test::tiny_config();
  config.train.steps = 3;
  test::SteppingClock still;
  const auto by_steps = make_trainer(config, still);
  while (!by_steps->done()) by_steps->step();
  CHECK(by_steps->steps() == 3);
  config.train.steps.reset();
  config.train.seconds = 40.0;
  test::SteppingClock clock(1.0);
  const auto by_clock = make_trainer(config, clock);
  while (!by_clock->done()) by_clock->step();
  CHECK(by_clock->steps() > 5);
  CHECK(by_clock->steps() < 40);
}

TEST_CASE("sampling leaves weights and streams as they were") {
  const std::string objective = GENERATE("rectified_flow", "epsilon", "v", "x0");
  CAPTURE(objective);
  test::SteppingClock clock;
  const RunConfig config = test::tiny_config(objective);
  const auto sampled = make_trainer(config, clock), plain = make_trainer(config, clock);
  run(*sampled, 4);
  run(*plain, 4);
  const at::Tensor grid = sampled->sample().front().tensor;
  CHECK(grid.sizes() == at::IntArrayRef({4, 1, 8, 8}));
  CHECK(grid.isfinite().all().item<bool>());
  CHECK(at::equal(grid, plain->sample().front().tensor));
  run(*sampled, 2);
  run(*plain, 2);
  check_equal(*sampled, *plain);
}
