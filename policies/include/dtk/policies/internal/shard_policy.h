// The policy [policies.shard]: each rank updates its part of the parameters.
#pragma once
#include <dtk/policies/policy.h>
#include <dtk/policies/shards.h>

#include <exception>
#include <memory>
#include <string>

namespace dtk::policies {

class ShardPolicy final : public Policy {
 public:
  /// `shards` must outlive it and what it returns.
  explicit ShardPolicy(Shards& shards) : shards_(shards) {}
  std::string name() const override { return "shard"; }
  bool needs_steps() const override { return true; }
  bool needs_forward_scope() const override { return shards_.divides_weights() || shards_.gathers_late(); }
  /// Weights of no module have come where a pass begins; divided ones go where one without gradients ends.
  std::unique_ptr<PolicyScope> forward_scope() override;
  /// Lets divided weights go, which the step makes out of date; late ones have come.
  void before_step() override;
  /// Gathers the weights that other ranks updated, or begins to where their readers are known
  /// (ShardLayout::modules); not those that are divided.
  void after_step() override;
  std::unique_ptr<WeightExchange> sampling_weights() override;
  /// The exchange of this rank's parts becomes one of all weights, at its begin and at its end. If the latter
  /// fails, the policy's next call throws why.
  std::unique_ptr<WeightExchange> around(std::unique_ptr<WeightExchange> own) override;
  PolicyReport report() const override;

 protected:
  /// Divided weights are gathered by the modules that they lie in, and by their backward passes.
  void put_in(Seam& seam) override;

 private:
  class WholeExchange;
  class PassScope;
  void throw_failure();

  Shards& shards_;
  std::exception_ptr failure_;
};

}  // namespace dtk::policies
