// The attention policy: attention whose weights (N, H, T, T) are never stored.
//
// A fused kernel keeps q, k, v, its output and one float per head and token. LibTorch falls back to a
// materialised form without a word where it has no kernel (on the CPU: with dropout); this policy refuses
// that where it was asked for, and by default lists what runs materialised with its bytes.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/options/attention_options.h>
#include <dtk/policies/policy.h>
#include <dtk/policies/seam.h>

#include <memory>
#include <optional>

namespace dtk::policies {

/// softmax(q·kᵀ/√d)·v step by step, as attention was written before there were fused kernels: q (N, H, T, d),
/// k and v (N, H, S, d). Autograd keeps the weights (N, H, T, S); `causal` makes a mask (T, S) of bytes.
/// Throws c10::ValueError for `causal` beside a mask.
at::Tensor materialised_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionCall& call);

/// On a CUDA device each call through the seam sets which kernels LibTorch may choose (AttentionBackendGuard,
/// process-wide) and puts it back: no other thread may call attention meanwhile.
class AttentionPolicy final : public Policy {
 public:
  explicit AttentionPolicy(const AttentionOptions& options);

  std::string name() const override { return "attention"; }
  /// Watches forward passes, up to the first with gradients, for attention that does not run through the
  /// seam. Where the policy was asked for, such attention ends in a PolicyError that names its module.
  std::unique_ptr<PolicyScope> forward_scope() override;
  bool needs_forward_scope() const override { return options_.enabled == Enabled::on; }
  /// Where the policy was asked for: throws PolicyError for attention that a watched pass stored
  /// outside of all modules, and if no forward pass so far has called the seam's attention. Throws it too for
  /// another kernel than the default that no call could take; else report() says how many did.
  void before_step() override;
  /// Active until a forward pass shows otherwise: all of its attention was materialised, or none was called.
  PolicyReport report() const override;

 protected:
  void put_in(Seam& seam) override;

 private:
  class Watch;
  struct Findings;
  const AttentionOptions options_;
  const std::shared_ptr<Findings> findings_;
};

}  // namespace dtk::policies
