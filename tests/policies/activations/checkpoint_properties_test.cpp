// What a segment may take, return and hold, and how its gradients may be asked for: as the plain run, bit for
// bit. [device]: on any.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/device/poisoned_memory.h"
#include "support/device/test_device.h"
#include "support/policies/segment_tests.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using dtk::test::Fixture;
using dtk::test::kPlain;
using dtk::test::kSegment;
using dtk::test::leaf;
using dtk::test::same_bits;
using dtk::test::test_device;
using dtk::test::Wrap;

namespace {

void check_gradients(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("gradient " << i);
    REQUIRE(a[i].defined());
    REQUIRE(b[i].defined());
    CHECK_VALUES(same_bits(a[i], b[i]));
  }
}

}  // namespace

TEST_CASE("memory that is NaN once it is freed changes no bit: nobody reads what was let go") {
  const SavedTensorEngineGuard engine;
  const dtk::test::PoisonedMemory poisoned;
  const at::Tensor x = leaf({16, 8}), w = leaf({8, 8});
  const auto gradients = [&](const Wrap& wrap) {
    at::manual_seed(7);
    const ModuleFn inner = [&](Tensors&& in) {
      return Tensors{at::dropout(at::matmul(in[0], w), 0.5, true).tanh()};
    };
    const ModuleFn outer = [&](Tensors&& in) {
      return Tensors{wrap(inner, {at::matmul(in[0], w).sigmoid()})[0].sin()};
    };
    at::Tensor h = wrap(outer, {x * 2})[0];
    h = wrap(outer, {std::move(h)})[0];
    return torch::autograd::grad({h.sum()}, {x, w});
  };
  const Tensors plain = gradients(kPlain);
  CHECK(at::isfinite(plain[1]).all().item<bool>());
  check_gradients(plain, gradients(kSegment));
}

TEST_CASE("masks, indices, times and absent inputs need no gradient", "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({6, 4}), w = leaf({4, 4});
  const at::Tensor indices = at::arange(5, -1, -2).to(test_device()),
                   time = at::full({1}, 0.5, test_device());
  const at::Tensor mask = at::ones({3, 4}, at::kBool).to(test_device());
  const auto gradients = [&](const Wrap& wrap) {
    const ModuleFn fn = [&](Tensors&& in) {
      CHECK_FALSE(in[4].defined());
      at::Tensor h = at::matmul(in[0].index_select(0, in[1]), w).tanh();
      return Tensors{(h * in[2]).masked_fill(in[3], 0.25) * h};
    };
    const Tensors out = wrap(fn, {x, indices, time, mask, at::Tensor()});
    return torch::autograd::grad({out[0].sum()}, {x, w});
  };
  const int64_t before = checkpoint_counts().recomputes;
  check_gradients(gradients(kPlain), gradients(kSegment));
  CHECK(checkpoint_counts().recomputes == before + 1);
}

TEST_CASE("of several outputs some may be absent, without gradient or unused", "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({8});
  const auto gradients = [&](const Wrap& wrap, bool both) {
    const ModuleFn fn = [](Tensors&& in) {
      return Tensors{in[0].exp(), at::Tensor(), in[0].detach() * 2, in[0].sin()};
    };
    const Tensors out = wrap(fn, {x});
    REQUIRE(out.size() == 4);
    CHECK_FALSE(out[1].defined());
    CHECK_FALSE(out[2].requires_grad());
    const at::Tensor loss = both ? (out[0] * out[2] + out[3]).sum() : out[3].sum();
    return torch::autograd::grad({loss}, {x});
  };
  const bool both = GENERATE(true, false);
  check_gradients(gradients(kPlain, both), gradients(kSegment, both));
}

TEST_CASE("an absent output of one module is an absent input of the next in the segment", "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({8});
  CheckpointSegment chain;
  const ModuleFn first = [](Tensors&& in) { return Tensors{at::Tensor(), in[0].exp()}; };
  const ModuleFn second = [](Tensors&& in) { return Tensors{(in[0].defined() ? in[0] : in[1]).sin()}; };
  const Tensors out = chain.append("second", second, chain.append("first", first, {x}));
  const Tensors gradient = torch::autograd::grad({out[0].sum()}, {x});
  check_gradients(gradient, torch::autograd::grad({x.exp().sin().sum()}, {x}));
}

TEST_CASE("segments nest to any depth, with random numbers at each level", "[device]") {
  Fixture fixture;
  constexpr int kDepth = 12;
  const at::Tensor x = leaf({16, 16}), w = leaf({16, 16});
  const auto gradients = [&](const Wrap& wrap) {
    at::manual_seed(3);
    std::function<Tensors(Tensors&&, int)> level = [&](Tensors&& in, int depth) {
      at::Tensor h = at::dropout(at::matmul(in[0], w).tanh(), 0.1, true);
      if (depth == 1) return Tensors{h.sin()};
      Tensors deeper = wrap([&, depth](Tensors&& inner) { return level(std::move(inner), depth - 1); }, {h});
      return Tensors{deeper[0].sin() + h};
    };
    Tensors out = wrap([&](Tensors&& in) { return level(std::move(in), kDepth); }, {x});
    Tensors all = torch::autograd::grad({out[0].sum()}, {x, w});
    all.push_back(at::rand({4}, test_device()));
    return all;
  };
  check_gradients(gradients(kPlain), gradients(kSegment));
}

TEST_CASE("autograd::grad takes gradients of chosen tensors, again with retain_graph, and twice over",
          "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({5, 4}), w = leaf({4, 4}), v = leaf({4, 4});
  const auto gradients = [&](const Wrap& wrap) {
    const ModuleFn inner = [&](Tensors&& in) { return Tensors{at::matmul(in[0], v).sigmoid()}; };
    const ModuleFn fn = [&](Tensors&& in) {
      const at::Tensor h = at::matmul(in[0], w).tanh();
      return Tensors{wrap(inner, {h})[0] * h};
    };
    const at::Tensor loss = wrap(fn, {x})[0].pow(2).sum();
    Tensors all = torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true);
    const Tensors first = torch::autograd::grad({loss}, {x, v}, {}, true, /*create_graph=*/true);
    CHECK(first[0].requires_grad());
    const Tensors second = torch::autograd::grad({first[0].pow(2).sum() + first[1].pow(2).sum()}, {x, w, v});
    all.insert(all.end(), first.begin(), first.end());
    all.insert(all.end(), second.begin(), second.end());
    return all;
  };
  check_gradients(gradients(kPlain), gradients(kSegment));
}

// What backward takes as it is, a segment's input and views of its parameters, is of forward's graph: a
// second derivative goes through it.
TEST_CASE("inputs and parameters that backward takes as they are have gradients of gradients", "[device]") {
  Fixture fixture;
  const bool frozen = GENERATE(false, true), nested = GENERATE(false, true);
  CAPTURE(frozen, nested);
  const at::Tensor x = leaf({2, 5, 8}), w = leaf({8, 8}), bias = leaf({8}), v = leaf({8, 8});
  v.requires_grad_(!frozen);
  const auto gradients = [&](const Wrap& wrap) {
    const ModuleFn inner = [&](Tensors&& in) { return Tensors{at::linear(in[0], v)}; };
    const ModuleFn fn = [&](Tensors&& in) {
      const at::Tensor h = nested ? wrap(inner, {in[0]})[0] : in[0];
      return Tensors{at::linear(h, w, bias)};
    };
    const at::Tensor loss = wrap(inner, {wrap(fn, {x * 2})[0]})[0].pow(2).sum();
    Tensors of = {x, w, bias};
    if (!frozen) of.push_back(v);
    Tensors all = torch::autograd::grad({loss}, of, {}, true, /*create_graph=*/true);
    at::Tensor squares = all[0].pow(2).sum();
    for (const at::Tensor& one : all) squares = squares + one.pow(2).sum();
    for (const at::Tensor& one : torch::autograd::grad({squares}, of)) all.push_back(one);
    return all;
  };
  const Tensors plain = gradients(kPlain);
  const CheckpointCounts before = checkpoint_counts();
  check_gradients(plain, gradients(kSegment));
  CHECK(checkpoint_counts().segments > before.segments);
}

TEST_CASE("the recomputation has grad mode wherever backward is called, and leaves it as it was",
          "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({4});
  std::vector<bool> seen;
  const ModuleFn fn = [&](Tensors&& in) {
    seen.push_back(at::GradMode::is_enabled());
    at::Tensor factor;
    {
      const at::NoGradGuard constant;
      factor = in[0].exp();
    }
    return Tensors{in[0] * factor};
  };
  const at::Tensor loss = checkpoint("net", fn, {x})[0].sum();
  const at::NoGradGuard no_grad;
  const Tensors gradient = torch::autograd::grad({loss}, {x});
  CHECK_FALSE(at::GradMode::is_enabled());
  CHECK(seen == std::vector<bool>{true, true});
  CHECK_VALUES(same_bits(gradient[0], x.exp()));
}

TEST_CASE("the recomputation draws what forward drew, and the generator goes on from where it was",
          "[device]") {
  Fixture fixture;
  const auto state = [] { return generator_state(at::globalContext().defaultGenerator(test_device())); };
  std::vector<std::string> at_run;
  const ModuleFn fn = [&](Tensors&& in) {
    at_run.push_back(state());
    return Tensors{(in[0].exp() * at::rand({4, 8}, test_device())).sin()};
  };
  const at::Tensor x = leaf({4, 8});
  const at::Tensor loss = checkpoint("net", fn, {x})[0].sum();
  at::rand({4}, test_device());
  const std::string before = state();
  torch::autograd::backward({loss}, {});
  REQUIRE(at_run.size() == 2);
  CHECK(at_run[1] == at_run[0]);
  CHECK(before != at_run[0]);
  CHECK(state() == before);
}

TEST_CASE("the recomputation has forward's deterministic flags and attention backends", "[device]") {
  Fixture fixture;
  at::Context& context = at::globalContext();
  const bool before = context.deterministicAlgorithms(), warned = context.deterministicAlgorithmsWarnOnly();
  const bool deterministic = GENERATE(true, false);
  struct Seen {
    bool deterministic, warn_only, cudnn, fused;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen;
  const ModuleFn fn = [&](Tensors&& in) {
    seen.push_back({context.deterministicAlgorithms(), context.deterministicAlgorithmsWarnOnly(),
                    context.deterministicCuDNN(), context.userEnabledFlashSDP()});
    return Tensors{in[0].exp()};
  };
  const auto set = [&](bool on) {
    context.setDeterministicAlgorithms(on, /*warn_only=*/on);
    context.setDeterministicCuDNN(on);
  };
  set(deterministic);
  at::Tensor loss;
  {
    const AttentionBackendGuard without({.flash = !deterministic});
    loss = checkpoint("net", fn, {leaf({4})})[0].sum();
  }
  set(!deterministic);
  torch::autograd::backward({loss}, {});
  const Seen then{deterministic, deterministic, deterministic, !deterministic};
  CHECK((seen == std::vector<Seen>{then, then}));
  CHECK(context.deterministicAlgorithms() == !deterministic);
  CHECK(context.deterministicCuDNN() == !deterministic);
  CHECK(context.userEnabledFlashSDP());
  context.setDeterministicAlgorithms(before, warned);
  context.setDeterministicCuDNN(false);
}

// Parameters as the replicas of data parallelism have them: outputs of one node.
struct Broadcast : torch::autograd::Function<Broadcast> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext*, const at::Tensor& a,
                                                const at::Tensor& b) {
    return {a.clone(), b.clone()};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    ++runs;
    return gradients;
  }
  static inline int runs = 0;
};

TEST_CASE(
    "backward goes nowhere twice: one node that gives all segments their weights, hooks, shared weights",
    "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({6, 4}), a = leaf({4, 4}), b = leaf({4, 4}), shared = leaf({4, 4});
  int hooks = 0;
  for (const at::Tensor& tensor : {x, a, b, shared})
    tensor.register_hook([&](const at::Tensor&) { ++hooks; });
  const auto gradients = [&](const Wrap& wrap) {
    Broadcast::runs = 0;
    hooks = 0;
    const auto replicas = Broadcast::apply(a, b);
    Tensors h{x};
    for (const at::Tensor& w : {replicas[0], replicas[1], replicas[0]}) {
      const ModuleFn fn = [w, &shared](Tensors&& in) {
        return Tensors{at::matmul(at::matmul(in[0], w).tanh(), shared).sigmoid()};
      };
      h = wrap(fn, std::move(h));
    }
    for (const at::Tensor& tensor : {x, a, b, shared}) tensor.mutable_grad().reset();
    torch::autograd::backward({h[0].sum()}, {});
    CHECK(Broadcast::runs == 1);
    CHECK(hooks == 4);
    return Tensors{x.grad(), a.grad(), b.grad(), shared.grad()};
  };
  check_gradients(gradients(kPlain), gradients(kSegment));
}
