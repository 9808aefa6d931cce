// Offloaded segments: what copies that are late, memory that is freed, changes in place, other orders of
// backward and exceptions must not do.
#include <ATen/ATen.h>
#include <dtk/policies/offload.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/catch.h"
#include "support/device/delayed_async_copies.h"
#include "support/device/poisoned_memory.h"
#include "support/device/settled_memory.h"
#include "support/error_text.h"
#include "support/policies/offload_net.h"

using namespace dtk::policies;
using namespace dtk::test;

TEST_CASE("late copies and memory that is NaN once it is freed change no bit") {
  SavedTensorEngineGuard engine;
  const dtk::test::PoisonedMemory poisoned;
  const Net net;
  const Tensors wanted = net.gradients(plain);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const auto late = [&](c10::Device) { return std::make_unique<dtk::test::DelayedAsyncCopies>(seed); };
    const auto store = std::make_shared<OffloadStore>(0, late);
    check_equal(wanted, net.gradients(offloaded(store)));
    // Dropped while copies are on their way, in either direction.
    at::Tensor out = net.forward(offloaded(store));
    const auto some = torch::autograd::grad({out.sum()}, {net.up[2]}, {}, /*retain_graph=*/true);
    CHECK(same_bits(some[0], wanted[3]));
    out.reset();
    check_equal(wanted, net.gradients(offloaded(store)));
    CHECK(store->counts().host_bytes == 0);
  }
}

// Not on a device: a write that the copy beside it was not waited for. Its gradient is refused either way.
TEST_CASE("a storage that is changed between two savings has a copy for each") {
  Fixture fixture;
  const at::Tensor w = leaf({kRows, kWidth});
  const Store store = store_of();
  Tensors graphs;
  const ModuleFn fn = [&](Tensors&& in) {
    at::Tensor h = in[0] * w;
    graphs.push_back(h.sin());
    h.add_(1);
    return Tensors{h.cos()};
  };
  const Tensors out = offload("net", fn, {at::ones({kRows, kWidth}, test_device())}, store);
  CHECK(store->counts().copied_out == 3);  // the input, and h twice
  const auto gradient = torch::autograd::grad({out[0].sum()}, {w});
  CHECK_VALUES(same_bits(gradient[0], (w.detach() + 1).sin().neg()));
  CHECK_THAT(error_text<c10::Error>([&] { (void)torch::autograd::grad({graphs[0].sum()}, {w}); }),
             Catch::StartsWith("a tensor [8, 16] saved for backward in net was changed in place afterwards "
                               "(version 0 when saved, 1 now), so its gradient would be wrong; make that "
                               "change out of place, or after backward"));
}

TEST_CASE("a change in place after a segment is found, as in a plain run", "[device]") {
  Fixture fixture;
  const at::Tensor w = leaf({kRows, kWidth});
  const Store store = store_of();
  Tensors held;
  const ModuleFn fn = [&](Tensors&& in) {
    held.push_back(in[0] * w);
    return Tensors{held[0].sin()};
  };
  const Tensors out = offload("blocks.3", fn, {at::ones({kRows, kWidth}, test_device())}, store);
  offload(
      "blocks.4", [&](Tensors&& in) { return Tensors{in[0] * w}; }, {w * 1}, store);  // the copy has ended
  held[0].mul_(2);
  CHECK_THAT(error_text<c10::Error>([&] { torch::autograd::backward({out[0].sum()}, {}); }),
             Catch::StartsWith("a tensor [8, 16] saved for backward in blocks.3 was changed in place "
                               "afterwards (version 0 when saved, 1 now)"));
}

TEST_CASE("retain_graph, autograd::grad and double backward", "[device]") {
  Fixture fixture;
  const Net net;
  const Store store = store_of();
  const Tensors wanted = net.gradients(plain);
  const auto second = [&](const RunSegment& run) {
    const at::Tensor out = net.forward(run);
    const auto first = torch::autograd::grad({out.sum()}, {net.x}, {}, /*retain_graph=*/true,
                                             /*create_graph=*/true);
    return torch::autograd::grad({first[0].pow(2).sum()}, {net.up[1], net.down[0]});
  };
  const Tensors twice = second(plain);
  check_equal(twice, second(offloaded(store)));
  const at::Tensor out = net.forward(offloaded(store));
  const int64_t live = settled_live();
  for (int i = 0; i < 3; ++i) {
    const auto some = torch::autograd::grad({out.sum()}, {net.x, net.up[0]}, {}, /*retain_graph=*/true);
    CHECK_VALUES((same_bits(some[0], wanted[0]) && same_bits(some[1], wanted[1])));
  }
  CHECK(settled_live() == live);  // the first segment in the place of the last
  CHECK(store->counts().host_bytes == kNetDepth * kNetSegment);
}

TEST_CASE("two graphs at once, in either order of their backward passes", "[device]") {
  Fixture fixture;
  const Net net;
  const Store store = store_of();
  const Tensors wanted = net.gradients(plain);
  for (const bool first_first : {true, false}) {
    Tensors outs{net.forward(offloaded(store)), net.forward(offloaded(store))};
    for (const size_t i : {first_first ? 0u : 1u, first_first ? 1u : 0u}) {
      const auto some = torch::autograd::grad({outs[i].sum()}, {net.x, net.up[0]});
      CHECK_VALUES((same_bits(some[0], wanted[0]) && same_bits(some[1], wanted[1])));
    }
    CHECK(store->counts().host_bytes == 0);
  }
}

TEST_CASE("an exception in forward, in a copy or in backward leaves nothing behind", "[device]") {
  Fixture fixture;
  const Net net;
  struct Broken final : AsyncCopies {
    explicit Broken(int64_t& left) : calls_left(left) {}
    std::unique_ptr<AsyncCopy> begin(const at::Tensor& from, const at::Tensor& to) override {
      if (calls_left-- <= 0) throw std::runtime_error("the copy cannot begin");
      return works->begin(from, to);
    }
    int64_t& calls_left;
    std::unique_ptr<AsyncCopies> works = make_async_copies(test_device());
  };
  int64_t calls_left = INT64_MAX;
  const auto store =
      std::make_shared<OffloadStore>(0, [&](c10::Device) { return std::make_unique<Broken>(calls_left); });
  const Tensors wanted = net.gradients(plain);
  check_equal(wanted, net.gradients(offloaded(store)));
  for (const at::Tensor& one : net.leaves()) one.mutable_grad().reset();
  const int64_t live = settled_live();
  const auto nothing_left = [&] {
    for (const at::Tensor& one : net.leaves()) one.mutable_grad().reset();
    CHECK(settled_live() == live);
    CHECK(store->counts().host_bytes == 0);
    if (ledger_sees()) CHECK(offloaded_on_host() == 0);
  };
  CHECK_THROWS_WITH(net.forward([&](int i, const ModuleFn& fn, Tensors&& in) {
    const ModuleFn fails = [&, i](Tensors&& x) {
      Tensors out = fn(std::move(x));
      if (i == 2) throw std::runtime_error("the model fails");
      return out;
    };
    return offload("net", fails, std::move(in), store);
  }),
                    "the model fails");
  nothing_left();
  for (const int64_t calls : {0, 7, 15, 17, 20, 26}) {  // 16 go out, 12 come back
    CAPTURE(calls);
    calls_left = calls;
    CHECK_THROWS_WITH(net.gradients(offloaded(store)), Catch::Contains("the copy cannot begin"));
    calls_left = INT64_MAX;
    nothing_left();
  }
  {
    const at::Tensor out = net.forward(offloaded(store));
    calls_left = 2;
    CHECK_THROWS_WITH(torch::autograd::backward({out.sum()}, {}, /*retain_graph=*/true),
                      Catch::Contains("the copy cannot begin"));
    calls_left = INT64_MAX;
    const auto again = torch::autograd::grad({out.sum()}, {net.x});  // the graph is still good
    CHECK_VALUES(same_bits(again[0], wanted[0]));
  }
  nothing_left();
  check_equal(wanted, net.gradients(offloaded(store)));
}

TEST_CASE("a thousand steps leave nothing, with and without a backward pass", "[device]") {
  Fixture fixture;
  const Net net;
  const Store store = store_of();
  for (const at::Tensor& one : net.leaves()) one.mutable_grad().reset();
  (void)torch::autograd::grad({net.forward(offloaded(store)).sum()}, {net.x});
  const int64_t device = settled_live(), cpu = cpu_accounts().live_bytes(),
                host = host_accounts().live_bytes();
  for (int step = 0; step < 1000; ++step) {
    const at::Tensor out = net.forward(offloaded(store));
    if (step % 3 != 0) (void)torch::autograd::grad({out.sum()}, {net.x});
  }
  CHECK(settled_live() == device);
  CHECK(cpu_accounts().live_bytes() == cpu);
  CHECK(host_accounts().live_bytes() == host);
  CHECK(store->counts().host_bytes == 0);
}
