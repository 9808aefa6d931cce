#include <dtk/policies/internal/when_accumulated.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>
#include <vector>

namespace dtk::policies {
namespace {

using torch::autograd::PostAccumulateGradHook;

class Calls final : public PostAccumulateGradHook {
 public:
  explicit Calls(std::unique_ptr<PostAccumulateGradHook> before) : before_(std::move(before)) {}

  void add(std::function<void(const at::Tensor&)> call, const std::shared_ptr<const void>& alive) {
    std::erase_if(calls_, [](const Call& one) { return one.is_bound && one.alive.expired(); });
    calls_.push_back({std::move(call), alive, alive != nullptr});
  }

  void operator()(const at::Tensor& parameter) override {
    if (before_ != nullptr) (*before_)(parameter);
    for (const Call& one : calls_) {
      const std::shared_ptr<const void> alive = one.alive.lock();
      if (!one.is_bound || alive != nullptr) one.call(parameter);
    }
  }

 private:
  struct Call {
    std::function<void(const at::Tensor&)> call;
    std::weak_ptr<const void> alive;
    bool is_bound;
  };
  const std::unique_ptr<PostAccumulateGradHook> before_;
  std::vector<Call> calls_;
};

}  // namespace

void when_accumulated(const at::Tensor& parameter, std::function<void(const at::Tensor&)> call,
                      const std::shared_ptr<const void>& alive) {
  std::unique_ptr<PostAccumulateGradHook>& slot = torch::autograd::impl::post_acc_grad_hooks(parameter);
  auto* calls = dynamic_cast<Calls*>(slot.get());
  if (calls == nullptr) {
    auto made = std::make_unique<Calls>(std::move(slot));
    calls = made.get();
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(made));
  }
  calls->add(std::move(call), alive);
}

}  // namespace dtk::policies
