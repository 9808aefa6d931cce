// What every memory policy is to a trainer. A trainer walks a list of these and names none of them.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/report.h>
#include <dtk/policies/seam.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtk::policies {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// What a policy must find again to continue a run bit for bit.
struct PolicyState {
  NamedTensors tensors;
  std::map<std::string, int64_t> counters;
  // Each tensor is of what Shards::own() has of the parameter of its name, and has as many elements.
  bool of_own_parts = false;
};

/// A PolicyState as it is kept: each tensor is read when it is wanted, so that a state and what it is copied
/// into are never both in memory.
struct StoredPolicyState {
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    std::function<void(const at::Tensor& into)> read_into;  // into one of that shape, on any device
  };
  StoredPolicyState() = default;
  StoredPolicyState(const PolicyState& state);  ///< of tensors that are in memory, which it shares

  std::vector<Entry> tensors;
  std::map<std::string, int64_t> counters;
};

/// An exchange of the model's weights that ends with the object's life.
class WeightExchange {
 public:
  virtual ~WeightExchange() = default;
};

/// State of LibTorch that a policy changes for a while, put back at the end of the object's life.
class PolicyScope {
 public:
  virtual ~PolicyScope() = default;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string name() const = 0;
  /// Puts the policy into the model: wraps what it needs of the seam. Once, before training; the seam stays
  /// usable when the policy is gone. Throws PolicyError if the seam holds a policy of this name already.
  void apply(Seam& seam);
  /// Around each forward pass, loss included; ends before backward. Null if there is nothing to change.
  virtual std::unique_ptr<PolicyScope> forward_scope() { return nullptr; }
  /// True if a training pass outside of forward_scope() is one without the policy, or one in which it cannot
  /// see to what was asked of it.
  virtual bool needs_forward_scope() const { return false; }
  /// True if the policy has no effect unless it hears of each optimizer step.
  virtual bool needs_steps() const { return false; }
  /// After how many optimizer steps its work repeats: what it does in a step depends on the step's number
  /// modulo this only, once it has begun.
  virtual int64_t period() const { return 1; }
  /// Before each optimizer step changes the weights.
  virtual void before_step() {}
  /// Once, before the first step that after_step_unless() follows: takes what memory it needs beside what is
  /// there, as nothing may be refused once weights have changed.
  virtual void reserve_for_skipping() {}
  /// After each optimizer step. Reads no value on the host, and takes no memory on the device; what several
  /// ranks gather comes in its place.
  virtual void after_step() {}
  /// In place of after_step() where a step may turn out to have changed nothing: `skipped`, a float scalar on
  /// the parameters' device, is then 1, else 0. It keeps its value until the next before_step() has returned,
  /// and is read on no host. A policy that would take the step for one that changed the weights overrides it.
  virtual void after_step_unless(const at::Tensor& /*skipped*/) { after_step(); }
  /// The weights to sample with, in place of the model's own; null if the policy has none.
  virtual std::unique_ptr<WeightExchange> sampling_weights() { return nullptr; }
  /// `own`: what another policy's sampling_weights() returned, or null, which then is part of the result.
  virtual std::unique_ptr<WeightExchange> around(std::unique_ptr<WeightExchange> own) { return own; }
  /// Tensors are the live ones, not copies.
  virtual PolicyState state() const { return {}; }
  /// Reads one tensor at a time. Throws PolicyError if `state` is not one of this policy and model; nothing
  /// is changed then.
  virtual void restore(const StoredPolicyState&) {}
  virtual PolicyReport report() const = 0;

 protected:
  virtual void put_in(Seam&) {}
};

}  // namespace dtk::policies
