#include <c10/util/StringUtil.h>
#include <dtk/policies/internal/shard_policy.h>
#include <dtk/policies/memory_ledger.h>

#include <utility>

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

void ShardPolicy::throw_failure() {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void ShardPolicy::after_step() {
  throw_failure();
  const PhaseScope phase("gather");
  shards_.gather();
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
                   " parameters, and has moments, sums of gradients and averages of these alone")};
}

}  // namespace dtk::policies
