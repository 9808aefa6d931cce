// Validation: what its loss is, and that the training does not notice it.
#include "toolkit/train/validation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/runs/trainer_state.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/data/held_out.h"
#include "toolkit/data/synthetic_source.h"
#include "toolkit/diffusion/objective.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/families/dit/trainable.h"

using namespace dtk;
using test::check_equal, test::make_trainer, test::run;

namespace {

// 10 samples: two whole micro-batches of 4 and a short one.
std::shared_ptr<const ImageSource> held_out() {
  return hold_out(test::tiny_data(), 10, 1).held_out;
}

// The loss by hand: each batch, weighted with its samples.
double expected_loss(const RunConfig& config, const TrainableModel& trained) {
  const models::Dit& model = dynamic_cast<const dit::TrainableDit&>(trained).dit();
  const at::NoGradGuard no_grad;
  const auto source = held_out();
  const auto objective =
      make_objective(dit::options_of(config).diffusion, dit::options_of(config).model.learn_sigma, at::kCPU);
  double sum = 0;
  for (int64_t first = 0; first < 10; first += 4) {
    const int64_t count = std::min<int64_t>(4, 10 - first);
    at::Tensor images = at::empty({count, 1, 8, 8}), labels = at::empty({count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) {
      labels[i] = source->read_image(first + i, images[i].data_ptr<float>());
    }
    const at::Generator noise =
        policies::make_generator(at::kCPU, seed_at(stream_seed(config.train.seed, "validate"), 0, first));
    const Denoiser denoiser = [&](at::Tensor x, at::Tensor t, at::Tensor y) {
      return model.forward(std::move(x), std::move(t), std::move(y), /*training=*/false);
    };
    sum += static_cast<double>(count) * objective->loss(denoiser, images, labels, noise).item<double>();
  }
  return sum / 10;
}

std::optional<Validated> measured(const Validation& validation, Trainer& trainer,
                                  const std::function<bool()>& keep_going = {}) {
  const auto own = validation.measure_sync(trainer, keep_going);
  if (!own) return std::nullopt;
  return validation.of_all(trainer.model(), {*own});
}

}  // namespace

TEST_CASE("validation: the mean of the objective over the held-out samples, without dropout") {
  test::SteppingClock clock;
  const RunConfig config = test::tiny_config();  // its model drops labels and activations in training
  const auto trainer = make_trainer(config, clock);
  run(*trainer, 3);
  const Validation validation(config, held_out());
  CHECK(validation.samples() == 10);
  const double loss = measured(validation, *trainer).value().loss;
  CHECK(loss == Approx(expected_loss(config, trainer->model())).epsilon(1e-12));
  CHECK(loss == measured(validation, *trainer).value().loss);
  run(*trainer, 1);
  CHECK(loss != measured(validation, *trainer).value().loss);
}

TEST_CASE("validation: ranks measure what is theirs, and together what one does") {
  test::SteppingClock clock;
  const RunConfig config = test::tiny_config();
  const auto trainer = make_trainer(config, clock);
  run(*trainer, 2);
  const Validation validation(config, held_out());  // three micro-batches
  const double alone = measured(validation, *trainer).value().loss;
  for (const int64_t ranks : {2, 3, 4}) {
    INFO(ranks);
    std::vector<std::vector<double>> said;
    std::vector<int> passes;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      passes.push_back(0);
      const auto count = [&] { return ++passes.back() > 0; };
      said.push_back(validation.measure_sync(*trainer, count, RankShare{rank, ranks}).value());
      CHECK(said.back().size() == said.front().size());
    }
    CHECK(passes == std::vector<int>(static_cast<size_t>(ranks), ranks == 2 ? 2 : 1));
    CHECK(validation.of_all(trainer->model(), said).loss == alone);
  }
}

TEST_CASE("validation: it can be given up between micro-batches") {
  test::SteppingClock clock;
  const RunConfig config = test::tiny_config();
  const auto trainer = make_trainer(config, clock);
  const Validation validation(config, held_out());
  int asked = 0;
  CHECK_FALSE(measured(validation, *trainer, [&] { return ++asked < 3; }));
  CHECK(asked == 3);
  CHECK(measured(validation, *trainer, [] { return true; }).value().loss ==
        measured(validation, *trainer).value().loss);
}

TEST_CASE("validation: with the EMA weights if asked for") {
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  config.train.validate_ema = true;
  const auto trainer = make_trainer(config, clock);
  run(*trainer, 3);
  const double raw = expected_loss(config, trainer->model());
  double averaged = 0;
  {
    const auto exchange = trainer->policies().sampling_weights();
    averaged = expected_loss(config, trainer->model());
  }
  REQUIRE(raw != averaged);
  const double loss = measured(Validation(config, held_out()), *trainer).value().loss;
  CHECK(loss == Approx(averaged).epsilon(1e-12));
}

TEST_CASE("validation: with EMA weights that there are not is an error") {
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  config.train.validate_ema = true;
  config.policies.ema.enabled = policies::Enabled::off;
  const auto trainer = make_trainer(config, clock);
  CHECK(test::error_text<ConfigError>([&] { Validation(config, held_out()).measure_sync(*trainer); }) ==
        "train.validate_ema = true, but this run has no EMA weights, as its policies say; set "
        "train.validate_ema "
        "= false");
}

TEST_CASE("validation: training is bit-equal with and without it") {
  const bool ema = GENERATE(false, true);
  const auto precision = GENERATE(policies::CpuPrecision::fp32, policies::CpuPrecision::bf16);
  test::SteppingClock clock;
  RunConfig config = test::tiny_config();
  config.train.validate_ema = ema;
  config.policies.precision.cpu = precision;
  const policies::SavedTensorEngineGuard engine;
  const auto with = make_trainer(config, clock), without = make_trainer(config, clock);
  const Validation validation(config, held_out());
  for (int i = 0; i < 6; ++i) {
    with->step();
    without->step();
    validation.measure_sync(*with);
  }
  check_equal(*with, *without);
}

TEST_CASE("validation: its memory is that of phase \"validate\", and all of it has an owner") {
  policies::CountingAllocatorGuard counting;
  policies::SavedTensorEngineGuard engine;
  policies::cpu_accounts().reset_phases("build");
  test::SteppingClock clock;
  const RunConfig config = test::tiny_config();
  const auto trainer = make_trainer(config, clock);
  run(*trainer, 2);
  trainer->wait_for_data();
  const int64_t before = policies::cpu_accounts().live_bytes();
  Validation(config, held_out()).measure_sync(*trainer);
  CHECK(policies::cpu_accounts().live_bytes() == before);
  const auto phases = policies::cpu_accounts().phases();
  const auto phase = std::find_if(phases.begin(), phases.end(),
                                  [](const policies::PhasePeak& entry) { return entry.name == "validate"; });
  REQUIRE(phase != phases.end());
  const auto items = phase->peak.items();
  CHECK(items.count(policies::Category::other) == 0);
  CHECK(phase->peak.of(policies::Category::gradients) == 0);
  CHECK(phase->peak.of(policies::Category::saved) == 0);  // nothing is kept for backward
  // Of four samples the labels: the images are let go once they are noised.
  CHECK(items.at(policies::Category::data).at("validation") == 4 * 8);
}

TEST_CASE("validation: no training time passes") {
  test::SteppingClock clock(0.001);
  const RunConfig config = test::tiny_config();
  const auto trainer = make_trainer(config, clock);
  const Validation validation(config, held_out());
  const double before = trainer->elapsed_seconds();
  int asked = 0;
  validation.measure_sync(*trainer, [&] {
    for (int i = 0; i < 10000; ++i) clock.seconds();  // 10 seconds
    ++asked;
    return true;
  });
  REQUIRE(asked == 3);
  CHECK(trainer->elapsed_seconds() - before < 1);
}

TEST_CASE("validation: the tables of the objective are the trainer's") {
  const policies::CountingAllocatorGuard counting;
  test::SteppingClock clock;
  const RunConfig config = test::tiny_config("epsilon");
  const auto trainer = make_trainer(config, clock);
  trainer->wait_for_data();
  const int64_t before = policies::cpu_accounts().live_bytes();
  const auto tables =
      make_objective(dit::options_of(config).diffusion, dit::options_of(config).model.learn_sigma, at::kCPU);
  REQUIRE(policies::cpu_accounts().live_bytes() > before);
  const int64_t with_tables = policies::cpu_accounts().live_bytes();
  const Validation validation(config, held_out());
  CHECK(policies::cpu_accounts().live_bytes() == with_tables);
}
