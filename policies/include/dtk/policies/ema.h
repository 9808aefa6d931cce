// Exponential moving average of a model's weights: e <- d·e + (1 - d)·w after every optimizer step.
//
// Synchronous, on the training device. Costs 4 bytes per parameter there.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/ema_options.h>
#include <dtk/policies/policy.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dtk::policies {

/// Decay of update number n = 0, 1, ...: min(decay, (1 + n) / (10 + n)) with warm-up, else decay.
double ema_decay(const EmaOptions& options, int64_t n);

class Ema final : public Policy {
 public:
  /// Starts as a copy of `parameters`; those that need no gradient are fixed and are not averaged.
  /// Throws PolicyError if no parameter is trainable, or if decay is outside [0, 1).
  Ema(const EmaOptions& options, const NamedTensors& parameters);

  std::string name() const override { return "ema"; }
  /// Averages the parameters' present values in.
  void after_step() override;
  /// The model's parameters hold the averages until the exchange ends; then the raw weights are back, also
  /// when an exception passes. Storages trade places, so no second copy is made. One at a time.
  std::unique_ptr<WeightExchange> sampling_weights() override;
  /// Averages by parameter name, fp32, and the number of updates.
  PolicyState state() const override;
  void restore(const PolicyState& state) override;
  PolicyReport report() const override;

 private:
  class Exchange;
  EmaOptions options_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;  // in the order of names_
  std::vector<at::Tensor> averages_;    // likewise
  int64_t updates_ = 0;
};

}  // namespace dtk::policies
