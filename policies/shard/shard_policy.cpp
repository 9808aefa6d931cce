#include <c10/util/StringUtil.h>
#include <dtk/policies/internal/shard_policy.h>
#include <dtk/policies/memory_ledger.h>

#include <exception>
#include <utility>

namespace dtk::policies {
namespace {

class WholeExchange final : public WeightExchange {
 public:
  WholeExchange(Shards& shards, std::unique_ptr<WeightExchange> own) : shards_(shards), own_(std::move(own)) {
    shards_.gather();
  }
  ~WholeExchange() override {
    own_.reset();
    try {
      shards_.gather();
    } catch (...) {
      shards_.gather_later(std::current_exception());
    }
  }

 private:
  Shards& shards_;
  std::unique_ptr<WeightExchange> own_;
};

}  // namespace

void ShardPolicy::after_step() {
  const PhaseScope phase("gather");
  shards_.gather();
}

std::unique_ptr<WeightExchange> ShardPolicy::around(std::unique_ptr<WeightExchange> own) {
  if (own == nullptr) return nullptr;
  return std::make_unique<WholeExchange>(shards_, std::move(own));
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
