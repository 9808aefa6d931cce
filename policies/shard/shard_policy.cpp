#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/internal/recomputing.h>
#include <dtk/policies/internal/shard_policy.h>
#include <dtk/policies/memory_ledger.h>

#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "shard/rounded_reads.h"

namespace dtk::policies {

class ShardPolicy::WholeExchange final : public WeightExchange {
 public:
  WholeExchange(ShardPolicy& policy, std::unique_ptr<WeightExchange> own)
      : policy_(policy), own_(std::move(own)) {
    policy_.shards_.gather();
  }
  ~WholeExchange() override {
    own_.reset();
    try {
      policy_.shards_.gather();
    } catch (...) {
      policy_.failure_ = std::current_exception();
    }
  }

 private:
  ShardPolicy& policy_;
  std::unique_ptr<WeightExchange> own_;
};

// Without gradients, nothing waits for backward.
class ShardPolicy::PassScope final : public PolicyScope {
 public:
  explicit PassScope(ShardPolicy& policy) : policy_(policy) {}
  ~PassScope() override {
    try {
      policy_.shards_.let_go();  // waits for what is on its way
    } catch (...) {
      policy_.failure_ = std::current_exception();
    }
  }

 private:
  ShardPolicy& policy_;
};

void ShardPolicy::put_in(Seam& seam) {
  if (!needs_forward_scope()) return;
  std::set<std::string, std::less<>> watched;  // once each
  seam.run = [&shards = shards_, inner = std::move(seam.run), watched = std::move(watched)](
                 std::string_view path, const ModuleFn& fn, Tensors&& inputs) mutable {
    const Shards::Use use(shards, path);
    std::optional<RoundedReads> reads;
    if (shards.sends() == ShardGather::bf16 && watched.emplace(path).second) reads.emplace(shards, path);
    Tensors outputs = inner(path, fn, std::move(inputs));
    reads.reset();
    if (!shards.divides_weights()) return outputs;
    // Casts of weights would outlive them.
    at::autocast::clear_cache();
    if (recomputing()) return outputs;  // those of forward tell of backward
    for (const at::Tensor& output : outputs) {
      if (!output.defined() || output.grad_fn() == nullptr) continue;
      output.register_hook(
          [&shards, module = std::string(path)](const at::Tensor&) { shards.use_in_backward(module); });
    }
    return outputs;
  };
}

std::unique_ptr<PolicyScope> ShardPolicy::forward_scope() {
  if (!needs_forward_scope()) return nullptr;
  throw_failure();
  shards_.begin_pass();
  if (!shards_.divides_weights() || at::GradMode::is_enabled()) return nullptr;
  return std::make_unique<PassScope>(*this);
}

void ShardPolicy::before_step() {
  throw_failure();
  shards_.settle();
  shards_.let_go();
}

void ShardPolicy::throw_failure() {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void ShardPolicy::after_step() {
  throw_failure();
  if (shards_.divides_weights()) return;  // who uses them gathers them
  const PhaseScope phase("gather");
  shards_.gathers_late() ? shards_.begin_gather() : shards_.gather();
}

// Before an average takes the place of the own parts.
std::unique_ptr<WeightExchange> ShardPolicy::sampling_weights() {
  throw_failure();
  shards_.settle();
  return nullptr;
}

std::unique_ptr<WeightExchange> ShardPolicy::around(std::unique_ptr<WeightExchange> own) {
  throw_failure();
  if (own == nullptr) return nullptr;
  return std::make_unique<WholeExchange>(*this, std::move(own));
}

PolicyReport ShardPolicy::report() const {
  int64_t all = 0, own = 0;
  for (size_t i = 0; i < shards_.parameters().size(); ++i) {
    all += shards_.parameters()[i].second.numel();
    own += shards_.own_part(i).elements;
  }
  return {name(), true,
          c10::str("rank ", shards_.rank(), " of ", shards_.ranks(), " updates ", own, " of ", all,
                   " parameters, and has ", shards_.divides_weights() ? "weights, " : "",
                   "moments, sums of gradients and averages of these alone",
                   shards_.sends() == ShardGather::bf16
                       ? c10::str("; matrices of ", shards_.targets().size(), " modules are sent as bf16")
                       : "")};
}

}  // namespace dtk::policies
