// All policies of a program, made from their options and put into one model. In a training loop:
//
//   PolicySet policies(options, {device, parameters, paths}, seam);
//   { const auto scope = policies.forward_scope(); loss = forward(); }
//   loss.backward();
//   policies.step(optimizer);
//   for (const PolicyReport& report : policies.reports()) print(report);
#pragma once
#include <dtk/policies/internal/staging_ring.h>
#include <dtk/policies/policy_kind.h>
#include <dtk/policies/saved_tensors.h>

#include <memory>
#include <string>
#include <vector>

namespace dtk::policies {

struct SeamUse;

/// For one thread, which runs the forward passes and calls the rest; its backward passes may run on others.
class PolicySet {
 public:
  /// Makes each policy that `options` do not switch off and puts it into `seam`; whatever `seam.run` does
  /// runs within the module's module path. Throws PolicyError for a policy that was asked for and cannot
  /// act, and for a seam that holds policies already. The set must outlive the backward passes: it holds the
  /// engine that checkpointing needs (saved_tensors.h). `engine` brings weights to the EMA in host memory; by
  /// default LibTorch's for a device, none for the CPU.
  PolicySet(const PolicyOptions& options, const Subject& subject, Seam& seam,
            std::unique_ptr<StagingCopies> engine = nullptr);

  /// Around each forward pass, loss included; ends before backward. A training pass outside of it ends in a
  /// PolicyError where a policy would miss it, as does every module that is none of Subject.paths.
  [[nodiscard]] std::unique_ptr<PolicyScope> forward_scope();
  /// Before and after each optimizer step. The first throws PolicyError where a policy that was asked for has
  /// no effect.
  void before_step();
  void after_step();
  /// The same after a step that may have changed nothing (Policy::after_step_unless), after
  /// reserve_for_skipping().
  void reserve_for_skipping();
  void after_step_unless(const at::Tensor& skipped);
  /// optimizer.step() between the two.
  template <class Optimizer>
  void step(Optimizer& optimizer) {
    before_step();
    optimizer.step();
    after_step();
  }
  /// The weights to sample with; null if no policy has any.
  std::unique_ptr<WeightExchange> sampling_weights();

  /// The steps after which the work of all of them repeats: the least common multiple of their periods.
  int64_t period() const;

  /// One for each policy, also for those switched off. One that waits for step() in vain is not active.
  std::vector<PolicyReport> reports() const;
  const std::vector<std::unique_ptr<Policy>>& list() const { return list_; }

 private:
  std::unique_ptr<SavedTensorEngineGuard> engine_;
  const std::shared_ptr<SeamUse> use_;  // shared with the seam
  const std::vector<const PolicyKind*>& kinds_;
  std::vector<std::unique_ptr<Policy>> list_;
  std::vector<PolicyReport> off_;
};

}  // namespace dtk::policies
