// Segments that may not compute the same twice: changes in place, state, other tensors, exceptions. [device]:
// on any.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/device/settled_memory.h"
#include "support/policies/segment_tests.h"

using namespace dtk::policies;
using dtk::test::Fixture;
using dtk::test::settled_live;
using dtk::test::test_device;

TEST_CASE("a change in place between two modules of one segment is refused, within one it is recomputed",
          "[device]") {
  Fixture fixture;
  const at::Tensor w = at::full({4}, 0.5, test_device()).requires_grad_(true);
  const at::Tensor ones = at::ones({4}, test_device());
  const ModuleFn times = [&](Tensors&& in) { return Tensors{in[0] * w}; };
  const ModuleFn inside = [&](Tensors&& in) {
    in[0].add_(1);
    return Tensors{in[0] * w};
  };
  const auto gradient = [&](const ModuleFn& second, bool one_segment) {
    w.mutable_grad().reset();
    std::optional<CheckpointSegment> chain(std::in_place);
    Tensors first = chain->append("blocks.0", times, Tensors{ones});
    const at::Tensor also = first[0];  // the same tensor, which the second module may change
    if (!one_segment) chain.emplace();
    Tensors out = chain->append("blocks.1", second, std::move(first));
    out = chain->append("blocks.2", times, Tensors{out[0], also});
    torch::autograd::backward({out[0].sum()}, {});
    return w.grad();
  };
  const at::Tensor joined = gradient(times, true), apart = gradient(times, false);
  CHECK_VALUES(at::equal(joined, apart));
  const at::Tensor changed = gradient(inside, true);
  CHECK_VALUES(at::equal(changed, at::full({4}, 3 * 0.25 + 2 * 0.5, test_device())));  // of w^3 + w^2

  CheckpointSegment chain;
  Tensors between = chain.append("blocks.0", times, Tensors{ones});
  const bool at_once = GENERATE(true, false);
  between[0].add_(1);
  if (!at_once) chain.append("blocks.3", inside, chain.append("blocks.2", times, Tensors{ones}));
  CHECK_THROWS_WITH(
      chain.append("blocks.1", times, std::move(between)),
      Catch::Contains("checkpoint blocks.1: its input [4], which blocks.0 returned, was changed in place "
                      "between modules (version 0 then, 1 now)"));
}

TEST_CASE("running statistics are updated once, whether a module asks if it is recomputed or not") {
  Fixture fixture;
  const at::Tensor x = at::randn({8, 3}), w = at::ones({3}).requires_grad_(true);
  at::Tensor mean, variance;
  std::vector<bool> seen;
  const auto train = [&](bool in_segment, bool asks) {
    mean = at::zeros({3}), variance = at::ones({3});
    w.mutable_grad().reset();
    seen.clear();
    const ModuleFn norm = [&](Tensors&& in) {
      seen.push_back(recomputing());
      const double momentum = asks && recomputing() ? 0.0 : 0.1;
      return Tensors{at::batch_norm(in[0].mul(w), {}, {}, mean, variance, true, momentum, 1e-5, false).exp()};
    };
    const Tensors out = in_segment ? checkpoint("norm", norm, Tensors{x}) : norm(Tensors{x});
    CHECK_FALSE(recomputing());
    std::thread([&] { torch::autograd::backward({out[0].sum()}, {}); }).join();
    CHECK_FALSE(recomputing());
  };
  train(false, false);
  const at::Tensor once = mean, once_variance = variance, gradient = w.grad();
  CHECK(seen == std::vector<bool>{false});
  train(true, false);
  CHECK(at::equal(mean, once));
  train(true, true);
  CHECK(seen == std::vector<bool>{false, true});
  CHECK(at::equal(mean, once));
  CHECK(at::equal(variance, once_variance));
  CHECK(at::equal(w.grad(), gradient));
}

TEST_CASE("an exception in forward or in the recomputation passes and leaves nothing behind", "[device]") {
  Fixture fixture;
  const at::Tensor w = at::ones({4}, test_device()).requires_grad_(true);
  const int64_t before = settled_live(), cpu = cpu_accounts().live_bytes();
  const ModuleFn always = [](Tensors&&) -> Tensors { throw std::runtime_error("in forward"); };
  CHECK_THROWS_WITH(checkpoint("a", always, Tensors{w}), "in forward");
  CHECK(SavedTensorStack::current().empty());
  int run = 0;
  const ModuleFn later = [&](Tensors&& in) {
    if (run++ == 1) throw std::runtime_error("in the recomputation");
    return Tensors{in[0].exp()};
  };
  {
    const at::Tensor out = checkpoint("a", later, Tensors{w})[0].sum();
    CHECK_THROWS_WITH(torch::autograd::backward({out}, {}), "in the recomputation");
  }
  CHECK(SavedTensorStack::current().empty());
  CHECK(at::GradMode::is_enabled());
  CHECK(settled_live() == before);
  CHECK(cpu_accounts().live_bytes() == cpu);
}
