// The training objective on samples that are never trained on.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/data/data_source.h"
#include "toolkit/train/trainer.h"

namespace dtk {

struct Validated {
  double loss = 0;
  std::vector<Score> scores;  // of models that have some
};

class Validation {
 public:
  /// `held_out` as hold_out() gives it.
  Validation(const RunConfig& config, std::shared_ptr<const DataSource> held_out);

  int64_t samples() const { return held_out_->size(); }

  /// The trainer's objective over the samples, and the scores of what the model draws for them, with its
  /// weights or, with train.validate_ema, their averages: of the micro-batches of `share`; read on the host,
  /// as numbers for of_all(), as many for each rank. No training time passes. No gradients, no dropped
  /// labels, no dropout. Times and noise of a micro-batch are the same at every call, from a stream of their
  /// own by the position of its first sample, so losses compare between steps of a run; they change with the
  /// micro-batch. Weights, generators and the order of the training data stay what they are. In memory phase
  /// "validate". Nothing if `keep_going`, asked before each micro-batch, gave up. Throws what the data source
  /// throws; ConfigError for train.validate_ema without an EMA.
  std::optional<std::vector<double>> measure_sync(Trainer& trainer,
                                                  const std::function<bool()>& keep_going = {},
                                                  const RankShare& share = {}) const;

  /// The mean over all samples, the same from any number of ranks. `said`: what measure_sync() gave each of
  /// them, in their order. Throws Error for a loss that is not finite.
  Validated of_all(const TrainableModel& model, const std::vector<std::vector<double>>& said) const;

 private:
  int64_t micro_batches() const;

  const RunConfig config_;
  const std::shared_ptr<const DataSource> held_out_;
};

}  // namespace dtk
