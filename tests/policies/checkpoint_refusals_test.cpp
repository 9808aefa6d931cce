// What a segment refuses, by the whole message: it says where, what was seen and what to change.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

struct Fixture {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
};

// Without the backtrace.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "(nothing was thrown)";
}

at::Tensor ones(at::IntArrayRef shape) {
  return at::ones(shape).requires_grad_(true);
}

// Of backward through `fn` as a segment.
std::string backward_error(const SubtreeFn& fn, Tensors&& inputs) {
  const Tensors out = checkpoint("blocks.3", fn, std::move(inputs));
  return error_of([&] { torch::autograd::backward({out[0].sum()}, {}); });
}

}  // namespace

TEST_CASE("a recomputation of another form is refused with both forms and the likely cause") {
  Fixture fixture;
  const std::string same = "; a segment must compute the same again: ";
  int run = 0;
  SECTION("a tensor of another size") {
    const SubtreeFn grows = [&](Tensors&& in) {
      const at::Tensor h = in[0].narrow(0, 0, ++run).exp();
      return Tensors{h * h};
    };
    CHECK(backward_error(grows, {ones({4})}) ==
          "checkpoint blocks.3: the recomputation saved tensor number 0 as [2] Float on cpu, forward saved "
          "[1] Float on cpu" +
              same +
              "dimension 0 grew, as that of a cache which each call appends to: switch such a cache off in "
              "training, or leave this sub-tree out of the segments; else look for a counter or a flag that "
              "changed between forward and backward");
    run = 2;
    const SubtreeFn shrinks = [&](Tensors&& in) { return Tensors{in[0].narrow(0, 0, run--).exp()}; };
    CHECK(backward_error(shrinks, {ones({4})}) ==
          "checkpoint blocks.3: the recomputation saved tensor number 0 as [1] Float on cpu, forward saved "
          "[2] Float on cpu" +
              same +
              "look for state (a counter, a cache, a flag, a global) that changed between forward and "
              "backward, and for branches on it");
  }
  SECTION("of another dtype") {
    const SubtreeFn casts = [&](Tensors&& in) {
      return Tensors{in[0].exp().to(run++ == 0 ? at::kFloat : at::kDouble).sin()};
    };
    CHECK(backward_error(casts, {ones({4})}) ==
          "checkpoint blocks.3: the recomputation saved tensor number 1 as [4] Double on cpu, forward saved "
          "[4] Float on cpu" +
              same +
              "look for a cast by a flag or by a default dtype that changed between forward and backward");
  }
  SECTION("fewer tensors") {
    const SubtreeFn fewer = [&](Tensors&& in) {
      return Tensors{run++ == 0 ? in[0].exp().exp() : in[0].exp()};
    };
    CHECK(backward_error(fewer, {ones({4})}) ==
          "checkpoint blocks.3: the recomputation saved 1 tensors, forward saved 2" + same +
              "look for a branch on a flag, such as training mode, and for work done in the first call only");
  }
  SECTION("fewer results, which a later sub-tree of the segment takes") {
    CheckpointChain chain;
    const SubtreeFn first = [&](Tensors&& in) {
      Tensors out{in[0] * 2};
      if (run++ == 0) out.push_back(in[0] * 3);
      return out;
    };
    const SubtreeFn second = [](Tensors&& in) { return Tensors{(in[0] + in[1]).exp()}; };
    const Tensors out = chain.append("blocks.4", second, chain.append("blocks.3", first, {ones({4})}));
    CHECK(error_of([&] { torch::autograd::backward({out[0].sum()}, {}); }) ==
          "checkpoint blocks.3: the recomputation returned 1 tensors, forward returned 2" + same +
              "look for a branch on a flag, such as training mode, and for work done in the first call only");
  }
}

TEST_CASE("a layer that returns a growing cache is refused, also where backward needs nothing of the cache") {
  Fixture fixture;
  at::Tensor cache = at::zeros({0, 4});
  const bool in_graph = GENERATE(true, false);
  const SubtreeFn layer = [&](Tensors&& in) {
    const at::Tensor h = in[0].exp();
    cache = at::cat({cache, h.detach()});
    return Tensors{in_graph ? h * cache.pow(2).sum(0) : h * 2, cache};
  };
  checkpoint("blocks.2", layer, {ones({3, 4})});  // of an earlier token
  const std::string cause =
      "; a segment must compute the same again: dimension 0 grew, as that of a cache which each call appends "
      "to: switch such a cache off in training, or leave this sub-tree out of the segments; else look for a "
      "counter or a flag that changed between forward and backward";
  CHECK(backward_error(layer, {ones({3, 4})}) ==
        "checkpoint blocks.3: the recomputation returned tensor number 1 as [9, 4] Float on cpu, forward "
        "returned [6, 4] Float on cpu" +
            cause);
}

TEST_CASE("a segment that changes its input in place is refused in forward") {
  Fixture fixture;
  const at::Tensor x = at::ones({2, 3});
  const SubtreeFn in_place = [](Tensors&& in) {
    at::Tensor h = std::move(in[1]);
    return Tensors{h.relu_() * in[0]};
  };
  const int64_t before = cpu_accounts().live_bytes();
  CHECK(
      error_of([&] {
        checkpoint("blocks.3", in_place, {ones({2, 3}), x});
      }) ==
      "checkpoint blocks.3: changes its input 1, [2, 3] Float on cpu, in place (version 1 before, 2 after), "
      "but backward needs it as it was to compute the segment again; make that change out of place (relu, "
      "not relu_) or on a copy (tensor.clone())");
  CHECK(cpu_accounts().live_bytes() == before);
}

TEST_CASE("an input or a parameter that is changed in place before backward is refused") {
  Fixture fixture;
  const at::Tensor w = ones({4}), x = at::ones({4});
  const SubtreeFn fn = [&](Tensors&& in) { return Tensors{in[0] * w}; };
  const Tensors first = checkpoint("blocks.3", fn, {x});
  x.add_(1);
  CHECK(
      error_of([&] { torch::autograd::backward({first[0].sum()}, {}); }) ==
      "a tensor [4] saved for backward in blocks.3 was changed in place afterwards (version 1 when saved, 2 "
      "now), so its gradient would be wrong; make that change out of place, or after backward");
  const Tensors second = checkpoint("blocks.3", fn, {ones({4})});
  {
    const at::NoGradGuard step;
    w.sub_(0.1);
  }
  CHECK(
      error_of([&] { torch::autograd::backward({second[0].sum()}, {}); }) ==
      "checkpoint blocks.3: its parameter [4] Float on cpu was changed in place between forward and backward "
      "(version 1 then, 2 now), so the recomputation would not give what forward gave; change it after "
      "backward");
}

TEST_CASE("a segment that returns its input unchanged is refused, one that passes an input on is not") {
  Fixture fixture;
  const SubtreeFn identity = [](Tensors&& in) { return std::move(in); };
  CHECK(
      error_of([&] { checkpoint("blocks.3", identity, {ones({4})}); }) ==
      "checkpoint blocks.3: returns its input 0, [4] Float on cpu, unchanged, so there is nothing to compute "
      "again; leave this sub-tree out of the segments, or skip it where it is called");
  const at::Tensor x = ones({4}), c = ones({4});
  const SubtreeFn passes_on = [](Tensors&& in) { return Tensors{(in[0] * in[1]).exp(), in[1]}; };
  CheckpointChain chain;
  const Tensors out = chain.append("blocks.1", passes_on, chain.append("blocks.0", passes_on, {x, c}));
  CHECK(out[1].is_same(c));
  const Tensors gradients = torch::autograd::grad({out[0].sum()}, {x, c});
  const Tensors plain = torch::autograd::grad({((x * c).exp() * c).exp().sum()}, {x, c});
  CHECK(at::equal(gradients[0], plain[0]));
  CHECK(at::equal(gradients[1], plain[1]));
  const at::NoGradGuard evaluation;
  CHECK_NOTHROW(checkpoint("blocks.3", identity, {ones({4})}));
}

TEST_CASE("inputs on two devices are refused, numbers on the cpu are not") {
  Fixture fixture;
  const at::Tensor there = at::ones({2}, at::TensorOptions().device(at::kMeta));
  const SubtreeFn fn = [](Tensors&& in) { return Tensors{in[0] * 2}; };
  CHECK(
      error_of([&] {
        checkpoint("blocks.3", fn, {there, at::Tensor(), at::ones({3})});
      }) ==
      "checkpoint blocks.3: inputs on two devices: 0 on meta, 2 on cpu; a segment runs on one: move them to "
      "one before it (tensor.to); only numbers without dimensions may stay on the cpu");
  CHECK_NOTHROW(checkpoint("blocks.3", fn, {there, at::ones({})}));
}

TEST_CASE("backward within a segment's forward pass is refused") {
  Fixture fixture;
  const SubtreeFn fn = [](Tensors&& in) {
    const at::Tensor h = in[0].exp();
    return Tensors{torch::autograd::grad({h.sum()}, {in[0]})[0] * h};
  };
  CHECK(error_of([&] { checkpoint("blocks.3", fn, {ones({4})}); }) ==
        "checkpoint blocks.3: backward ran inside the segment, whose forward pass has not ended; take "
        "gradients outside of segments, or leave this sub-tree out of them");
}
