// train.on_not_finite = "skip": a step whose loss or gradient is not finite changes nothing but the run's
// position.
#include "toolkit/train/skipped_steps.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "support/catch.h"
#include "support/runs/run_world.h"
#include "support/runs/trainer_state.h"
#include "support/same_bits.h"

namespace dtk {
namespace {

using test::everything;

/// The tiny data, whose samples of these numbers hold a NaN.
class Poisoned final : public ImageSource {
 public:
  explicit Poisoned(std::set<int64_t> samples)
      : ImageSource({.size = 64, .channels = 1, .height = 8, .width = 8, .classes = 4}),
        samples_(std::move(samples)) {}
  std::string description() const override { return "64 made up"; }
  int64_t read_image(int64_t index, float* values) const override {
    const int64_t label = inner_->read_image(index, values);
    if (samples_.count(index) > 0) values[3] = std::numeric_limits<float>::quiet_NaN();
    return label;
  }

 private:
  const std::shared_ptr<const ImageSource> inner_ = test::tiny_data();
  const std::set<int64_t> samples_;
};

RunConfig skipping(const std::string& objective = "rectified_flow") {
  RunConfig config = test::tiny_config(objective);
  config.train.on_not_finite = NotFinite::skip;
  return config;
}

std::vector<at::Tensor> copies(const Trainer& trainer) {
  std::vector<at::Tensor> all;
  for (const NamedTensor& entry : everything(trainer)) all.push_back(entry.tensor.clone());
  return all;
}

/// Numbers of the samples that a run's step is of; `step` from 1.
std::vector<int64_t> samples_of_step(int64_t step, const RunConfig& config) {
  test::SteppingClock clock;
  return test::make_trainer(config, clock)
      ->samples_of(
          {.step = step, .first_sample = (step - 1) * config.data.batch, .samples = config.data.batch});
}

}  // namespace

TEST_CASE("skipped steps: where all is finite, skipping changes no bit") {
  test::SteppingClock clock;
  RunConfig stops = test::tiny_config(), skips = skipping();
  stops.optimizer.clip = skips.optimizer.clip = GENERATE(0.0, 1.0);
  const auto stopping = test::make_trainer(stops, clock), skipper = test::make_trainer(skips, clock);
  test::run(*stopping, 20);
  test::run(*skipper, 20);
  test::check_equal(*stopping, *skipper);
  const StepScalars a = stopping->read_scalars_sync(), b = skipper->read_scalars_sync();
  CHECK(a.loss == Approx(b.loss));
  CHECK(a.gradient_norm == b.gradient_norm);
  CHECK(b.skipped.empty());
}

TEST_CASE("skipped steps: weights, moments and averages stay, and the next step goes on") {
  RunConfig config = skipping();
  config.optimizer.clip = GENERATE(0.0, 1.0);
  const std::vector<int64_t> fourth = samples_of_step(4, config);
  test::SteppingClock clock;
  Trainer trainer(config, at::kCPU, std::make_shared<Poisoned>(std::set<int64_t>{fourth[5]}), clock);
  test::run(trainer, 3);
  const std::vector<at::Tensor> before = copies(trainer);
  trainer.step();
  const std::vector<NamedTensor> after = everything(trainer);
  for (size_t i = 0; i < after.size(); ++i) {
    INFO(after[i].name);
    CHECK(at::equal(after[i].tensor, before[i]));
  }
  CHECK(trainer.steps() == 4);
  const StepScalars scalars = trainer.read_scalars_sync();
  CHECK(scalars.finite);
  CHECK(std::isfinite(scalars.loss));
  CHECK(std::isfinite(scalars.gradient_norm));
  REQUIRE(scalars.skipped.size() == 1);
  CHECK(scalars.skipped[0].step == 4);
  CHECK(scalars.skipped_in_a_row == 1);
  CHECK(trainer.samples_of(scalars.skipped[0]) == fourth);
  trainer.step();
  bool changed = false;
  const std::vector<NamedTensor> next = everything(trainer);
  for (size_t i = 0; i < next.size(); ++i) changed = changed || !at::equal(next[i].tensor, before[i]);
  CHECK(changed);
  CHECK(trainer.read_scalars_sync().skipped.empty());
}

TEST_CASE("skipped steps: the same data end a run that does not skip") {
  RunConfig config = test::tiny_config();
  test::SteppingClock clock;
  Trainer trainer(config, at::kCPU,
                  std::make_shared<Poisoned>(std::set<int64_t>{samples_of_step(4, config)[5]}), clock);
  test::run(trainer, 4);
  CHECK_FALSE(trainer.read_scalars_sync().finite);
}

TEST_CASE("skipped steps: they are told of, and too many in a row end the run") {
  test::World world;
  LoadedConfig loaded = test::tiny("out");
  loaded.config.train.on_not_finite = NotFinite::skip;
  loaded.config.train.max_skipped = 2;
  const auto second = samples_of_step(2, loaded.config), third = samples_of_step(3, loaded.config),
             fourth = samples_of_step(4, loaded.config);
  const bool three = GENERATE(false, true);
  std::set<int64_t> poisoned = {second[0], third[7]};
  if (three) poisoned.insert(fourth[1]);
  world.data = std::make_shared<Poisoned>(poisoned);
  if (three) {
    CHECK_THROWS_WITH(
        world.run(loaded),
        "3 steps in a row were skipped, as the loss or a gradient was infinite or NaN, more than "
        "train.most_skipped = 2; the weights were not changed by them. Last good checkpoint: none. Start "
        "another run with a lower optimizer.lr, a longer schedule.warmup or a smaller optimizer.clip: a "
        "checkpoint continues with its own only");
  } else {
    CHECK(world.run(loaded).step == 20);
  }
  std::vector<int64_t> skipped;
  std::istringstream lines(world.files.read("out/log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["event"] == "skipped") skipped.push_back(json["step"].get<int64_t>());
    if (json["event"] == "step") CHECK((json["loss"].is_number() && json["gradient_norm"].is_number()));
  }
  std::vector<int64_t> expected = {2, 3};
  if (three) expected.push_back(4);
  // The second epoch reads the samples again.
  REQUIRE(skipped.size() >= expected.size());
  skipped.resize(expected.size());
  CHECK(skipped == expected);
  CHECK(world.files.read("out/report.html").find("changed nothing, as the loss or a gradient") !=
        std::string::npos);
}

TEST_CASE("skipped steps: the samples of a step of two epochs") {
  RunConfig config = skipping();
  config.data.batch = 48;  // in micro-batches of 16, of which an epoch of 64 samples has four
  config.train.accumulate = 3;
  test::SteppingClock clock;
  const auto trainer = test::make_trainer(config, clock);
  const auto samples = [&](int64_t first) {
    return trainer->samples_of({.step = 1, .first_sample = first, .samples = 48});
  };
  std::vector<int64_t> expected = samples(48);
  expected.resize(16);
  const std::vector<int64_t> next = samples(64);
  expected.insert(expected.end(), next.begin(), next.begin() + 32);
  CHECK(samples(48) == expected);
}

TEST_CASE("skipped steps: a row goes on over the readings, and one that counts ends it") {
  SkippedSteps steps(at::kCPU, 4);
  const at::Tensor sum = at::zeros({}), yes = at::ones({}), no = at::zeros({});
  const auto end = [&](int64_t step, bool skipped, float loss) {
    steps.loss().add_(loss);
    steps.prepare(skipped ? yes : no);
    steps.end_step({step, step * 8, 8}, 1, skipped ? yes : no, sum);
  };
  const auto read = [&] {
    const at::Tensor flags = steps.flags().to(at::kDouble).contiguous();
    return steps.read(flags.const_data_ptr<double>());
  };
  end(1, false, 2.0F);
  end(2, true, std::numeric_limits<float>::infinity());
  SkippedSteps::Read first = read();
  CHECK(first.parts == 1);
  CHECK(first.longest_row == 1);
  REQUIRE(first.skipped.size() == 1);
  CHECK(first.skipped[0].first_sample == 16);
  end(3, true, std::numeric_limits<float>::quiet_NaN());
  end(4, false, 3.0F);
  end(5, true, 1.0F);
  const SkippedSteps::Read second = read();
  CHECK(second.longest_row == 2);
  CHECK(second.parts == 1);
  CHECK(sum.item<float>() == 5.0F);
}

}  // namespace dtk
