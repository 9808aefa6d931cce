#include "toolkit/train/validation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
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

int64_t Validation::micro_batches() const {
  const int64_t micro_batch = samples_of_micro_batch(config_);
  return (samples() + micro_batch - 1) / micro_batch;
}

// A row a micro-batch: what it weighs, its loss, sums of scores. Rows of zeros are of none.
std::optional<std::vector<double>> Validation::measure_sync(Trainer& trainer,
                                                            const std::function<bool()>& keep_going,
                                                            const RankShare& share) const {
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
  const uint64_t stream = stream_seed(config_.train.seed, "validate");
  const std::unique_ptr<SampleScores> scores = trainer.model().scores();
  const int64_t micro_batch = samples_of_micro_batch(config_), rounds = share.rounds(micro_batches());
  const int64_t measured = scores ? 1 + scores->size() : 1;
  std::vector<int64_t> weights(static_cast<size_t>(rounds));
  const at::Tensor rows =
      at::zeros({rounds, measured}, at::TensorOptions().dtype(at::kDouble).device(device));
  policies::FoldableLoop passes("validation", rounds);
  while (const auto pass = passes.next()) {
    if (keep_going && !keep_going()) return std::nullopt;
    const RankShare::Turn turn = share.turn(*pass, micro_batches());
    const int64_t first = turn.batch * micro_batch;
    Batch batch = read_batch(*held_out_, first, std::min(micro_batch, samples() - first), "validation");
    if (turn.is_own) weights[static_cast<size_t>(*pass)] = batch.weight();
    const at::Tensor row = rows.select(0, *pass);
    if (scores) row.narrow(0, 1, scores->size()).copy_(scores->sums(batch));
    const at::Generator noise = policies::make_generator(device, seed_at(stream, 0, first));
    row.select(0, 0).copy_(trainer.model().loss(std::move(batch), noise, /*training=*/false));
  }
  const std::vector<double> values = policies::values_sync(rows);
  std::vector<double> numbers;
  for (size_t round = 0; round < weights.size(); ++round) {
    const auto row = values.begin() + static_cast<std::ptrdiff_t>(round) * measured;
    numbers.push_back(static_cast<double>(weights[round]));
    numbers.insert(numbers.end(), row, row + measured);
  }
  return numbers;
}

Validated Validation::of_all(const TrainableModel& model,
                             const std::vector<std::vector<double>>& said) const {
  const RankShare share{0, std::ssize(said)};
  const std::unique_ptr<SampleScores> scores = model.scores();
  const int64_t columns = scores ? 2 + scores->size() : 2;
  double all = 0, sum = 0;
  std::vector<double> sums(static_cast<size_t>(columns - 2));
  for (int64_t i = 0; i < micro_batches(); ++i) {
    const std::vector<double>& of_rank = said[static_cast<size_t>(i % share.ranks)];
    TORCH_INTERNAL_ASSERT(std::ssize(of_rank) == share.rounds(micro_batches()) * columns);
    const double* const row = of_rank.data() + i / share.ranks * columns;
    all += row[0];
    sum += row[0] * row[1];
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += row[2 + k];
  }
  Validated validated;
  validated.loss = sum / std::max(1.0, all);
  if (scores) validated.scores = scores->read(sums);
  if (std::isfinite(validated.loss)) return validated;
  throw Error(ExitCode::failure,
              "the validation loss is infinite or NaN, and its samples are finite; train in fp32 "
              "(policies.precision.enabled = false) or with a lower optimizer.lr");
}

}  // namespace dtk
