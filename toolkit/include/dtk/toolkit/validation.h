// The training objective on samples that are never trained on.
#pragma once
#include <c10/core/Device.h>
#include <dtk/models/dit.h>
#include <dtk/policies/policy_set.h>
#include <dtk/toolkit/config.h>
#include <dtk/toolkit/data_source.h>
#include <dtk/toolkit/objective.h>

#include <functional>
#include <memory>
#include <optional>

namespace dtk {

class Validation {
 public:
  /// `held_out` as hold_out() gives it.
  Validation(const RunConfig& config, c10::Device device, std::shared_ptr<const DataSource> held_out);

  int64_t samples() const { return held_out_->size(); }

  /// Mean of the training objective over all samples, with the model's weights or, with train.validate_ema,
  /// their averages; read on the host. No gradients, no dropped labels, no dropout. Times and noise are the
  /// same at every call, from a stream of their own, so losses compare between steps of a run; they change
  /// with the micro-batch. Weights, generators and the order of the training data stay what they are. In
  /// memory phase "validate". Nothing if `go_on`, asked before each micro-batch, gave up. Throws what the
  /// data source throws; ConfigError for train.validate_ema without an EMA, Error for a loss
  /// that is not finite.
  std::optional<double> loss_sync(const models::Dit& model, policies::PolicySet& policies,
                                  const std::function<bool()>& go_on = {}) const;

 private:
  const RunConfig config_;
  const c10::Device device_;
  const std::shared_ptr<const DataSource> held_out_;
  const std::unique_ptr<const Objective> objective_;
};

}  // namespace dtk
