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

  /// Mean of the trainer's objective over all samples and the scores of what the model draws for them, with
  /// its weights or, with train.validate_ema, their averages; read on the host. No training time passes. No
  /// gradients, no dropped labels, no dropout.
  /// Times and noise are the same at every call, from a stream of their own, so losses compare between steps
  /// of a run; they change with the micro-batch. Weights, generators and the order of the training data stay
  /// what they are. In memory phase "validate". Nothing if `keep_going`, asked before each micro-batch, gave
  /// up. Throws what the data source throws; ConfigError for train.validate_ema without an EMA, Error for a
  /// loss that is not finite.
  std::optional<Validated> measure_sync(Trainer& trainer, const std::function<bool()>& keep_going = {}) const;

 private:
  const RunConfig config_;
  const std::shared_ptr<const DataSource> held_out_;
};

}  // namespace dtk
