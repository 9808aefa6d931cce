// What follows the accumulation of a gradient: several calls share LibTorch's one hook.
#include <ATen/ATen.h>
#include <dtk/policies/internal/when_accumulated.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <string>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

void backward(const at::Tensor& parameter) {
  torch::autograd::backward({parameter.sum()}, {});
}

class Own final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Own(std::string& calls) : calls_(calls) {}
  void operator()(const at::Tensor&) override { calls_ += "o"; }

 private:
  std::string& calls_;
};

}  // namespace

TEST_CASE(
    "when accumulated: calls come in the order in which they were added, after the program's own hook") {
  const at::Tensor parameter = at::ones({3}).requires_grad_();
  std::string calls;
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Own>(calls));
  when_accumulated(parameter, [&](const at::Tensor& of) { calls += of.grad().defined() ? "1" : "?"; });
  when_accumulated(parameter, [&](const at::Tensor&) { calls += "2"; });
  backward(parameter);
  CHECK(calls == "o12");
  backward(parameter);
  CHECK(calls == "o12o12");
}

TEST_CASE("when accumulated: a call ends with what it belongs to, others stay") {
  const at::Tensor parameter = at::ones({3}).requires_grad_();
  std::string calls;
  auto alive = std::make_shared<char>();
  when_accumulated(
      parameter, [&](const at::Tensor&) { calls += "1"; }, alive);
  when_accumulated(parameter, [&](const at::Tensor&) { calls += "2"; });
  backward(parameter);
  alive.reset();
  backward(parameter);
  CHECK(calls == "122");
}

TEST_CASE("when accumulated: a gradient is claimed beside other calls") {
  const CountingAllocatorGuard counting;
  const at::Tensor parameter = at::ones({3}).requires_grad_();
  int64_t seen = 0;
  claim_gradient_when_written(parameter, "net");
  when_accumulated(parameter,
                   [&](const at::Tensor&) { seen = cpu_accounts().live().of(Category::gradients); });
  backward(parameter);
  CHECK(seen == 12);
}
