#include "toolkit/train/validation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <dtk/policies/advice.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <cmath>

#include "toolkit/core/errors.h"
#include "toolkit/core/random_streams.h"

namespace dtk {

Validation::Validation(const RunConfig& config, std::shared_ptr<const DataSource> held_out)
    : config_(config), held_out_(std::move(held_out)) {}

std::optional<Validated> Validation::measure_sync(Trainer& trainer,
                                                  const std::function<bool()>& keep_going) const {
  const Trainer::ClockStop clock(trainer);
  policies::PolicySet& policies = trainer.policies();
  const c10::Device device = trainer.device();
  const policies::PhaseScope phase("validate");
  const at::NoGradGuard no_grad;
  const policies::ModulePathScope path("validation");
  const auto exchange = config_.train.validate_ema ? policies.sampling_weights() : nullptr;
  if (config_.train.validate_ema && exchange == nullptr) {
    throw ConfigError("train.validate_ema = true, but this run has no EMA weights, as its policies say; " +
                      policies::advise("train.validate_ema", "false"));
  }
  const auto scope = policies.forward_scope();  // after the exchange: casts are of the new weights
  at::Generator noise = policies::make_generator(device, stream_seed(config_.train.seed, "validate"));
  at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  const std::unique_ptr<SampleScores> scores = trainer.model().scores();
  const int64_t micro_batch = samples_of_micro_batch(config_);
  int64_t all = 0;
  policies::FoldableLoop passes("validation", (samples() + micro_batch - 1) / micro_batch);
  while (const auto pass = passes.next()) {
    if (keep_going && !keep_going()) return std::nullopt;
    const int64_t first = *pass * micro_batch;
    const int64_t count = std::min(micro_batch, samples() - first);
    Batch batch = read_batch(*held_out_, first, count, "validation");
    const int64_t weight = batch.weight();
    all += weight;
    if (scores) scores->add(batch);
    const at::Tensor loss = trainer.model().loss(std::move(batch), noise, /*training=*/false);
    sum.add_(loss, static_cast<double>(weight));
  }
  Validated validated;
  validated.loss = policies::values_sync(sum).front() / static_cast<double>(std::max<int64_t>(1, all));
  if (scores) validated.scores = scores->read_sync();
  if (std::isfinite(validated.loss)) return validated;
  throw Error(ExitCode::failure,
              "the validation loss is infinite or NaN, and its samples are finite; train in fp32 "
              "(policies.precision.enabled = false) or with a lower optimizer.lr");
}

}  // namespace dtk
