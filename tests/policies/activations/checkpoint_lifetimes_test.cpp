// When the bytes of a segment come and go: as backward goes on, over many steps, after an exception.
// [device]: on any.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/device/settled_memory.h"
#include "support/device/test_device.h"
#include "support/policies/segment_tests.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using dtk::test::DeviceMemory;
using dtk::test::Fixture;
using dtk::test::leaf;
using dtk::test::same_bits;
using dtk::test::settled_live;
using dtk::test::test_device;

namespace {

// A chain of exp in one segment, each of which saves its result. Bytes alive when the gradient of each
// result arrives, the last result's first, above those before forward.
std::vector<int64_t> live_over_backward(const at::Tensor& x, int length, bool segment) {
  std::vector<int64_t> live;
  const int64_t before = settled_live();
  const ModuleFn fn = [&live, before, length](Tensors&& in) {
    at::Tensor h = std::move(in[0]);
    for (int i = 0; i < length; ++i) {
      h = h.exp();
      h.register_hook([&live, before](const at::Tensor&) { live.push_back(DeviceMemory::live() - before); });
    }
    return Tensors{std::move(h)};
  };
  at::Tensor loss = (segment ? checkpoint("net", fn, {x}) : fn({x}))[0].sum();
  torch::autograd::backward({loss}, {});
  x.mutable_grad().reset();
  loss.reset();
  CHECK(settled_live() == before);
  return live;
}

}  // namespace

TEST_CASE("what is recomputed is freed as backward goes on, at the same steps as what a plain run keeps",
          "[device]") {
  Fixture fixture;
  constexpr int kLength = 6;
  const at::Tensor x = leaf({32, 32});
  const int64_t each = x.numel() * 4;
  live_over_backward(x, kLength, false);  // what libraries take at their first call
  const std::vector<int64_t> plain = live_over_backward(x, kLength, false);
  const std::vector<int64_t> segment = live_over_backward(x, kLength, true);
  REQUIRE(plain.size() == kLength);
  REQUIRE(segment.size() == kLength);
  CHECK(segment[0] == plain[0] - kLength * each);  // nothing is kept, nothing made yet
  for (size_t i = 1; i < plain.size(); ++i) {
    CAPTURE(i);
    CHECK(segment[i] == plain[i]);
    if (i > 1) CHECK(segment[i] == segment[i - 1] - each);
  }
}

TEST_CASE("a segment's input is let go when its backward is done, not at the end of the pass", "[device]") {
  Fixture fixture;
  constexpr size_t kSegments = 5;
  const at::Tensor x = leaf({32, 32});
  const int64_t each = x.numel() * 4;
  const ModuleFn fn = [](Tensors&& in) { return Tensors{in[0].tanh()}; };
  // Bytes alive when the gradient of each segment's input is there, the last segment's first.
  const auto live_over_segments = [&](bool retain_graph) {
    std::vector<int64_t> live;
    at::Tensor h = x * 2;  // keeps nothing
    for (size_t i = 0; i < kSegments; ++i) {
      h.register_hook([&live](const at::Tensor&) { live.push_back(DeviceMemory::live()); });
      h = checkpoint("net", fn, {std::move(h)})[0];
    }
    at::Tensor loss = h.sum();
    h.reset();
    torch::autograd::backward({loss}, {}, retain_graph);
    x.mutable_grad().reset();
    return live;
  };
  live_over_segments(false);  // what libraries take at their first call
  const int64_t before = settled_live();
  const std::vector<int64_t> retained = live_over_segments(true);
  CHECK(settled_live() == before);
  const std::vector<int64_t> live = live_over_segments(false);
  REQUIRE(retained.size() == kSegments);
  REQUIRE(live.size() == kSegments);
  for (size_t i = 1; i < kSegments; ++i) {
    CAPTURE(i);
    CHECK(retained[i] == retained[i - 1]);
    CHECK(live[i] == live[i - 1] - each);
  }
}

TEST_CASE("a segment of whose tensors backward needs inputs and parameters alone is not recomputed",
          "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({16, 8}), w = leaf({8, 8});
  int runs = 0;
  const ModuleFn linear = [&](Tensors&& in) {
    ++runs;
    return Tensors{at::matmul(in[0], w.t())};
  };
  const auto train = [&](bool segments, const ModuleFn& last) {
    const SavedTensorScope ledger(saved_tensor_ledger());
    at::Tensor h = x * 2;
    for (const ModuleFn* fn : {&linear, &linear, &last})
      h = segments ? checkpoint("net", *fn, {std::move(h)})[0] : (*fn)({std::move(h)})[0];
    return torch::autograd::grad({h.sum()}, {x, w});
  };
  const int64_t before = checkpoint_counts().recomputes, dropped = checkpoint_counts().dropped;
  const auto plain = train(false, linear);
  runs = 0;
  const auto segments = train(true, linear);
  CHECK_VALUES(same_bits(plain[0], segments[0]));
  CHECK_VALUES(same_bits(plain[1], segments[1]));
  CHECK(runs == 3);
  CHECK(checkpoint_counts().recomputes == before);
  CHECK(checkpoint_counts().dropped == dropped);

  const ModuleFn with_result = [&](Tensors&& in) { return Tensors{at::matmul(in[0], w.t()).exp()}; };
  const auto plain_result = train(false, with_result), segments_result = train(true, with_result);
  CHECK_VALUES(same_bits(plain_result[1], segments_result[1]));
  CHECK(checkpoint_counts().recomputes == before + 1);  // exp's result
  CHECK(checkpoint_counts().dropped == dropped + 1);
}

TEST_CASE("inputs and parameters that backward takes as they are must be unchanged") {
  Fixture fixture;
  const at::Tensor x = leaf({4, 4}), w = leaf({4, 4});
  const ModuleFn linear = [&](Tensors&& in) { return Tensors{at::matmul(in[0], w)}; };
  const auto after_change_of = [&](bool weight) {
    at::Tensor h = x * 2;
    const at::Tensor out = checkpoint("net", linear, {h})[0];
    {
      const at::NoGradGuard no_grad;
      (weight ? w : h).mul_(2);
    }
    torch::autograd::backward({out.sum()}, {});
  };
  const std::string parameter = c10::str(
      "checkpoint net: its parameter [4, 4] Float on cpu was changed in place between forward and "
      "backward (version ",
      w._version(), " then, ", w._version() + 1, " now)");
  CHECK_THROWS_WITH(after_change_of(true), Catch::StartsWith(parameter));
  CHECK_THROWS_WITH(
      after_change_of(false),
      Catch::StartsWith("a tensor [4, 4] saved for backward in net was changed in place afterwards "
                        "(version 0 when saved, 1 now), so its gradient would be wrong"));
}

TEST_CASE("the recomputation stops at the last tensor that backward can still ask for") {
  Fixture fixture;
  const at::Tensor x = leaf({4});
  int tails = 0;
  const ModuleFn fn = [&](Tensors&& in) {
    Tensors out{in[0].exp()};
    out.push_back(in[0].sin());  // saves its input
    ++tails;
    return out;
  };
  Tensors out = checkpoint("net", fn, {x});
  const CheckpointCounts before = checkpoint_counts();
  out[1].reset();  // with its graph
  torch::autograd::backward({out[0].sum()}, {});
  CHECK(same_bits(x.grad(), x.exp()));
  CHECK(tails == 1);
  CHECK(checkpoint_counts().early_stops == before.early_stops + 1);
  CHECK(checkpoint_counts().recomputes == before.recomputes + 1);
}

TEST_CASE("a thousand steps leave nothing behind: nested, dropped, thrown away half way", "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({4, 8}), w = leaf({8, 8});
  const at::Tensor count = at::zeros({}, at::kLong);
  bool fails = false;
  const ModuleFn inner = [&](Tensors&& in) {
    if (fails && recomputing()) throw std::runtime_error("in the recomputation");
    return Tensors{at::dropout(at::matmul(in[0], w), 0.1, true).tanh()};
  };
  const ModuleFn outer = [&](Tensors&& in) {
    count.add_(1);
    return Tensors{checkpoint("outer.inner", inner, {at::matmul(in[0], w).exp()})[0].sin()};
  };
  const auto step = [&](int number) {
    const at::Tensor loss = checkpoint("outer", outer, {x})[0].sum();
    fails = number % 5 == 1;
    if (number % 5 == 0) return;  // no backward
    if (fails) {
      CHECK_THROWS_WITH(torch::autograd::backward({loss}, {}), Catch::Contains("in the recomputation"));
    } else {
      torch::autograd::backward({loss}, {});
    }
    for (const at::Tensor& tensor : {x, w}) tensor.mutable_grad().reset();
    fails = false;
  };
  for (int i = 0; i < 50; ++i) step(i);
  const int64_t tensors = settled_live(), cpu = cpu_accounts().live_bytes();
  constexpr int64_t kNoObjects = 32 * 200;  // an object in each step that throws would be as much
  int64_t min_growth = INT64_MAX;  // of the heap: the engine's threads fill caches of their own at times
  int thousands = 0;
  while (thousands < 3 || (min_growth >= kNoObjects && thousands < 10)) {
    ++thousands;
    const size_t heap = mallinfo2().uordblks;
    for (int i = 0; i < 1000; ++i) step(i);
    min_growth = std::min(min_growth, static_cast<int64_t>(mallinfo2().uordblks - heap));
    CHECK(settled_live() == tensors);
    CHECK(cpu_accounts().live_bytes() == cpu);
  }
  CHECK(min_growth < kNoObjects);
  CHECK_VALUES(count.item<int64_t>() == 1000 * thousands + 50);
}

TEST_CASE("an exception in the recomputation leaves nothing behind, and backward may be tried again",
          "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({16}), w = leaf({16});
  int run = 0;
  const ModuleFn fn = [&](Tensors&& in) {
    at::Tensor h = at::dropout(in[0] * w, 0.5, true).exp();
    h = h.sin();
    if (run++ == 1) throw std::runtime_error("in the recomputation");
    return Tensors{h.cos()};
  };
  const auto gradients = [&] { return torch::autograd::grad({checkpoint("net", fn, {x})[0].sum()}, {x, w}); };
  at::manual_seed(9);
  run = 2;
  const Tensors expected = gradients();
  const at::Tensor next = at::rand({4}, test_device());
  at::manual_seed(9);
  run = 0;
  const ModulePathScope path("loss");
  at::Tensor loss;
  {
    const AutocastGuard bf16(test_device().type(), true);  // forward's, not backward's
    const ModulePathScope net("net");
    loss = checkpoint("net", fn, {x})[0].sum();
  }
  const int64_t live = settled_live();
  const bool deterministic = at::globalContext().deterministicAlgorithms();
  CHECK_THROWS_WITH(torch::autograd::grad({loss}, {x, w}), Catch::Contains("in the recomputation"));
  CHECK(settled_live() == live);  // while the graph lives on
  CHECK(SavedTensorStack::current().empty());
  CHECK(at::GradMode::is_enabled());
  CHECK_FALSE(recomputing());
  CHECK_FALSE(at::autocast::is_autocast_enabled(test_device().type()));
  CHECK(module_path() == "loss");
  CHECK(at::globalContext().deterministicAlgorithms() == deterministic);
  CHECK_VALUES(same_bits(at::rand({4}, test_device()), next));
  const Tensors again = torch::autograd::grad({loss}, {x, w});
  for (size_t i = 0; i < again.size(); ++i) CHECK_VALUES(same_bits(again[i], expected[i]));
}
