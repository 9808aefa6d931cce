// Exponential moving average of a model's weights: e <- d·e + (1 - d)·w after every optimizer step, or after
// every k-th with the product of the k steps' decays.
//
// In host memory (host_ema.h) it costs nothing on the training device and is updated beside the training,
// on a thread of its own. On the training device it costs 4 bytes per parameter there and is updated in the
// step; so it is, too, when that device is the CPU, where there is nothing to move. On the CPU both forms
// give the same bits.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/internal/host_ema.h>
#include <dtk/policies/options/ema_options.h>
#include <dtk/policies/policy.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace dtk::policies {

/// Decay of step number n = 0, 1, ...: min(decay, (1 + n) / (10 + n)) with warm-up, else decay.
double ema_decay(const EmaOptions& options, int64_t n);

/// In host memory the policy needs before_step() before the weights change. An error of the background thread
/// is thrown by the next call of before_step, after_step, sampling_weights, state, restore or report.
class Ema final : public Policy {
 public:
  /// Starts as a copy of `parameters`; those that need no gradient are fixed and are not averaged. `engine`
  /// copies from the training device into host memory; by default LibTorch's for a device, none for the CPU.
  /// Throws PolicyError if an option is out of range, or if the average was asked for in host memory with the
  /// CPU as training device. Where there can be none (no parameter is trainable, one is not fp32, has gaps or
  /// is on another device), that is an error if it was asked for, else a line in the report.
  /// `of_own_parts`: `parameters` are Shards::own().
  Ema(const EmaOptions& options, const NamedTensors& parameters,
      std::unique_ptr<StagingCopies> engine = nullptr, bool of_own_parts = false);

  std::string name() const override { return "ema"; }
  /// Waits until the weights are copied, not until they are averaged in.
  void before_step() override;
  void reserve_for_skipping() override;
  /// Averages the parameters' present values in, or lets that begin.
  void after_step() override { average({}); }
  /// The same, but averages that step out: the averages keep their values. It counts for `every` and for the
  /// warm-up as any other.
  void after_step_unless(const at::Tensor& skipped) override { average(skipped); }
  int64_t period() const override { return obstacle_.empty() ? options_.every : 1; }
  bool needs_steps() const override { return obstacle_.empty(); }
  /// The model's parameters hold the averages until the exchange ends; then the raw weights are back, also
  /// when an exception passes. They trade places, so no second copy is made, except of one parameter at a
  /// time where it is a view or has one. Until the exchange ends, a step, state(), restore() and a second
  /// exchange throw PolicyError. If the way back fails, the policy's next call throws why.
  std::unique_ptr<WeightExchange> sampling_weights() override;
  /// Averages by parameter name, fp32, and the number of steps. Continues bit for bit with the same `every`.
  PolicyState state() const override;
  void restore(const StoredPolicyState& state) override;
  PolicyReport report() const override;

 private:
  class Exchange;
  void average(const at::Tensor& skipped);
  void refuse_exchanged(const char* what) const;
  void settle() const;
  size_t pieces() const;
  bool is_view(size_t piece) const;
  void trade(size_t piece, bool by_content);
  EmaOptions options_;
  const bool of_own_parts_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;  // in the order of names_
  std::vector<at::Tensor> averages_;    // likewise
  std::string obstacle_;                // why there is no average; then the policy does nothing
  at::Tensor weight_, zero_;            // where steps are skipped: of the present values; 0
  std::unique_ptr<HostEma> host_;       // null where the averages live with the parameters
  int64_t updates_ = 0;                 // steps counted
  bool exchanged_ = false;              // a WeightExchange lives
  std::exception_ptr failure_;          // why raw weights are not back in place
};

}  // namespace dtk::policies
