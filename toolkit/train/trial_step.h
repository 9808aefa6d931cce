// Trial steps: what a choice of policies costs, measured on the run's own model before or after training.
#pragma once
#include <ATen/core/Generator.h>
#include <dtk/policies/policy_set.h>

#include <memory>

#include "toolkit/config/config.h"
#include "toolkit/train/trainable_model.h"

namespace dtk {

/// Forward and backward passes as a training step makes them, on made-up data of the run's shapes. They
/// change no weight and leave no gradient; the model's own seam is not touched. Draws come from a stream of
/// their own, except what the model draws from the default generator, which is put back.
class TrialStep {
 public:
  /// Shares the parameters of `model`, whose gradients must be released. `batch`: samples of a pass. Throws
  /// policies::PolicyError as PolicySet does. policies.ema has no part in it.
  TrialStep(const RunConfig& config, const TrainableModel& model, const policies::PolicyOptions& options,
            int64_t batch);
  void run();

 private:
  const RunConfig& config_;
  const int64_t batch_;
  const std::unique_ptr<TrainableModel> model_;
  policies::PolicySet policies_;
  at::Generator noise_;
};

}  // namespace dtk
