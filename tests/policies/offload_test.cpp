// Offloaded segments: bytes on the device and in host memory, gradients as in the plain run, what a copy that
// is late or memory that is freed early would spoil, and what stays after exceptions.
//
// One segment of the chain below saves x and y (rows of 16) and h and g (rows of 32), 3072 bytes in fp32.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/counted_blocks.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/offload.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>

#include "support/catch.h"
#include "support/delayed_side_copies.h"
#include "support/error_text.h"
#include "support/poisoned_memory.h"
#include "support/same_bits.h"
#include "support/segment_tests.h"

using namespace dtk::policies;
using dtk::test::DeviceMemory;
using dtk::test::error_text;
using dtk::test::Fixture;
using dtk::test::leaf;
using dtk::test::on_cpu;
using dtk::test::same_bits;
using dtk::test::simulated;
using dtk::test::test_device;
using Store = std::shared_ptr<OffloadStore>;
using RunSegment = std::function<Tensors(int, const SubtreeFn&, Tensors&&)>;

namespace {

constexpr int64_t kRows = 8, kWidth = 16, kInner = 32, kDepth = 4;
constexpr int64_t kNarrow = kRows * kWidth * 4, kWide = kRows * kInner * 4;
constexpr int64_t kSegment = 2 * kNarrow + 2 * kWide;

Store store_of(int64_t min_bytes = 0) {
  return std::make_shared<OffloadStore>(min_bytes);
}

struct Net {
  at::Tensor x = leaf({kRows, kWidth});
  Tensors up, down;
  Net() {
    for (int64_t i = 0; i < kDepth; ++i) {
      up.push_back(leaf({kInner, kWidth}));
      down.push_back(leaf({kWidth, kInner}));
    }
    for (const at::Tensor& one : leaves()) claim(one, Category::parameters, "net");
  }
  SubtreeFn segment(size_t i) const {
    return [up = up[i], down = down[i]](Tensors&& in) {
      at::Tensor h = at::linear(in[0], up);
      in.clear();
      h = at::gelu(h);
      h = at::linear(h, down);
      return Tensors{h.sin()};
    };
  }
  at::Tensor forward(const RunSegment& run) const {
    Tensors h{x * 1};
    for (int i = 0; i < kDepth; ++i) h = run(i, segment(static_cast<size_t>(i)), std::move(h));
    return h[0];
  }
  Tensors leaves() const {
    Tensors all{x};
    all.insert(all.end(), up.begin(), up.end());
    all.insert(all.end(), down.begin(), down.end());
    return all;
  }
  Tensors gradients(const RunSegment& run) const {
    for (const at::Tensor& one : leaves()) one.mutable_grad().reset();
    torch::autograd::backward({forward(run).sum()}, {});
    Tensors all;
    for (const at::Tensor& one : leaves()) all.push_back(one.grad());
    return all;
  }
};

Tensors plain(int, const SubtreeFn& fn, Tensors&& in) {
  return fn(std::move(in));
}

RunSegment offloaded(const Store& store) {
  return [store](int i, const SubtreeFn& fn, Tensors&& in) {
    return offload("net." + std::to_string(i), fn, std::move(in), store);
  };
}

void check_equal(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("gradient " << i);
    CHECK_VALUES(same_bits(a[i], b[i]));
  }
}

// What the ledger counts: nothing of a real device, and not its pinned memory.
bool ledger_sees() {
  return on_cpu() || simulated();
}
int64_t saved_on_device() {
  return (on_cpu() ? cpu_accounts() : device_accounts()).live().of(Category::saved);
}
int64_t offloaded_on_host() {
  return (on_cpu() ? host_accounts() : cpu_accounts()).live().of(Category::offloaded);
}

}  // namespace

TEST_CASE("after forward the device holds what the last segment saved, host memory what all saved",
          "[device]") {
  Fixture fixture;
  const Net net;
  const SavedTensorScope ledger(saved_tensor_ledger());
  const auto grown = [&](const RunSegment& run) {
    const int64_t before = DeviceMemory::live();
    const at::Tensor out = net.forward(run);
    return DeviceMemory::live() - before - kNarrow;  // the output itself
  };
  grown(plain);
  const Store store = store_of();
  CHECK(grown(plain) == kDepth * kSegment);
  CHECK(grown(offloaded(store)) == kSegment);
  CHECK(store->counts().host_bytes == 0);  // the graph is gone
  CHECK(store->counts().most_host_bytes == kDepth * kSegment);
  CHECK(store->counts().copied_out == kDepth * 4);
  CHECK(store->counts().copied_out_bytes == kDepth * kSegment);

  const at::Tensor out = net.forward(offloaded(store));
  CHECK(store->counts().host_bytes == kDepth * kSegment);
  if (ledger_sees()) {
    CHECK(saved_on_device() == kSegment);
    CHECK(offloaded_on_host() == kDepth * kSegment);
  }
}

TEST_CASE("gradients are those of the plain run, and all but the last segment is fetched", "[device]") {
  Fixture fixture;
  const Net net;
  const Store store = store_of();
  const Tensors wanted = net.gradients(plain);
  for (int step = 1; step <= 3; ++step) {
    check_equal(wanted, net.gradients(offloaded(store)));
    CHECK(store->counts().fetched == step * (kDepth - 1) * 4);
    CHECK(store->counts().host_bytes == 0);
  }
}

TEST_CASE("while backward runs, the device holds one segment between two, and two within one", "[device]") {
  Fixture fixture;
  const Net net;
  const Store store = store_of();
  const SavedTensorScope ledger(saved_tensor_ledger());
  std::vector<int64_t> between, within, host;
  const RunSegment watched = [&](int i, const SubtreeFn& fn, Tensors&& in) {
    const SubtreeFn probed = [&, fn](Tensors&& deep) {
      const at::Tensor y = fn(std::move(deep))[0];
      y.register_hook([&](const at::Tensor&) { between.push_back(saved_on_device()); });
      return Tensors{y};
    };
    return offload("net." + std::to_string(i), probed, std::move(in), store);
  };
  const at::Tensor out = net.forward(watched);
  for (const at::Tensor& down : net.down) {
    down.register_hook([&](const at::Tensor&) {
      within.push_back(saved_on_device());
      host.push_back(store->counts().host_bytes);
    });
  }
  torch::autograd::backward({out.sum()}, {});
  REQUIRE(between.size() == kDepth);
  REQUIRE(within.size() == kDepth);
  // When the gradient of `down` is there, y and g are freed; x and h wait, and the segment before has come.
  for (size_t i = 0; i < kDepth; ++i) {
    const auto earlier = kDepth - 1 - static_cast<int64_t>(i);
    CHECK(host[i] == earlier * kSegment + kNarrow + kWide);
    if (!ledger_sees()) continue;
    CHECK(between[i] == kSegment);
    CHECK(within[i] == kNarrow + kWide + (earlier > 0 ? kSegment : 0));
  }
}

TEST_CASE("storages of fewer bytes stay on the device", "[device]") {
  Fixture fixture;
  const Net net;
  const Tensors wanted = net.gradients(plain);
  using Case = std::pair<int64_t, int64_t>;  // least bytes, bytes of a segment that go
  const Case one = GENERATE(Case{kNarrow, kSegment}, Case{kNarrow + 1, 2 * kWide}, Case{kWide, 2 * kWide},
                            Case{kWide + 1, 0});
  CAPTURE(one.first);
  const Store store = store_of(one.first);
  {
    const SavedTensorScope ledger(saved_tensor_ledger());
    const at::Tensor out = net.forward(offloaded(store));
    CHECK(store->counts().host_bytes == kDepth * one.second);
    if (ledger_sees()) CHECK(saved_on_device() == kDepth * (kSegment - one.second) + one.second);
  }
  check_equal(wanted, net.gradients(offloaded(store)));
}

TEST_CASE("late copies and memory that is NaN once it is freed change no bit") {
  SavedTensorEngineGuard engine;
  const dtk::test::PoisonedMemory poisoned;
  const Net net;
  const Tensors wanted = net.gradients(plain);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const auto late = [&](c10::Device) { return std::make_unique<dtk::test::DelayedSideCopies>(seed); };
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

TEST_CASE("a storage that several tensors lie in or several segments save is copied once; parameters never",
          "[device]") {
  Fixture fixture;
  const at::Tensor w = leaf({3, kRows, kWidth}), shared = leaf({kRows, kWidth});
  const SubtreeFn fn = [&](Tensors&& in) {
    const at::Tensor all = w * in[0];  // saves in[0] and a parameter
    const Tensors parts = all.unbind(0);
    return Tensors{(parts[0] * parts[1] * parts[2]).sin() *
                   in[1]};  // four more storages, c, one of them thrice
  };
  const auto run = [&](const RunSegment& how) {
    for (const at::Tensor& one : {w, shared}) one.mutable_grad().reset();
    const at::Tensor c = shared * 2;
    Tensors h{shared * 1, c};
    for (int i = 0; i < 3; ++i) h = {how(i, fn, std::move(h))[0], c};
    torch::autograd::backward({h[0].sum()}, {});
    return Tensors{w.grad(), shared.grad()};
  };
  const Store store = store_of();
  const Tensors wanted = run(plain);
  check_equal(wanted, run(offloaded(store)));
  // Each segment: its input, `all`, parts[0] * parts[1], the argument and the result of sin; and c once.
  CHECK(store->counts().copied_out == 3 * 5 + 1);
  CHECK(store->counts().copied_out_bytes == (3 * (4 + 3) + 1) * kNarrow);
  CHECK(store->counts().fetched == 2 * 5);  // c was there all the time
}

// Not on a device: a write that the copy beside it was not waited for. Its gradient is refused either way.
TEST_CASE("a storage that is changed between two savings has a copy for each") {
  Fixture fixture;
  const at::Tensor w = leaf({kRows, kWidth});
  const Store store = store_of();
  Tensors graphs;
  const SubtreeFn fn = [&](Tensors&& in) {
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
  const SubtreeFn fn = [&](Tensors&& in) {
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
  const int64_t live = DeviceMemory::live();
  for (int i = 0; i < 3; ++i) {
    const auto some = torch::autograd::grad({out.sum()}, {net.x, net.up[0]}, {}, /*retain_graph=*/true);
    CHECK_VALUES((same_bits(some[0], wanted[0]) && same_bits(some[1], wanted[1])));
  }
  CHECK(DeviceMemory::live() == live);  // the first segment in the place of the last
  CHECK(store->counts().host_bytes == kDepth * kSegment);
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

TEST_CASE("a segment that recomputes within one that offloads has its inputs and kept results in host memory",
          "[device]") {
  Fixture fixture;
  const Net net;
  const Tensors wanted = net.gradients(plain);
  const Store store = store_of();
  const auto kept = std::make_shared<KeptResults>(std::vector<std::string>{"aten::gelu"});
  const auto run = [&](const std::shared_ptr<KeptResults>& results) -> RunSegment {
    return [&, results](int i, const SubtreeFn& fn, Tensors&& in) {
      const SubtreeFn recomputed = [&, results](Tensors&& deep) {
        return checkpoint("net.inner", fn, std::move(deep), results);
      };
      return offload("net." + std::to_string(i), recomputed, std::move(in), store);
    };
  };
  {
    const at::Tensor out = net.forward(run(nullptr));
    CHECK(store->counts().host_bytes == kDepth * kNarrow);
  }
  {
    const at::Tensor out = net.forward(run(kept));
    CHECK(store->counts().host_bytes == kDepth * (kNarrow + kWide));
  }
  const int64_t copied = store->counts().copied_out;
  check_equal(wanted, net.gradients(run(nullptr)));
  check_equal(wanted, net.gradients(run(kept)));
  CHECK(store->counts().copied_out == copied + kDepth * 3);  // what is made again is not copied
  CHECK(store->counts().host_bytes == 0);
}

TEST_CASE("within a segment of either kind, and without grad mode, the outer one decides", "[device]") {
  Fixture fixture;
  const Net net;
  const Tensors wanted = net.gradients(plain);
  const Store outer = store_of(), inner = store_of();
  check_equal(wanted, net.gradients([&](int, const SubtreeFn& fn, Tensors&& in) {
    const SubtreeFn deep = [&](Tensors&& x) { return offload("inner", fn, std::move(x), inner); };
    return offload("outer", deep, std::move(in), outer);
  }));
  CHECK(outer->counts().copied_out == kDepth * 4);
  CHECK(inner->counts().copied_out == 0);
  check_equal(wanted, net.gradients([&](int, const SubtreeFn& fn, Tensors&& in) {
    const SubtreeFn deep = [&, fn](Tensors&& x) { return offload("inner", fn, std::move(x), inner); };
    return checkpoint("outer", deep, std::move(in));
  }));
  CHECK(inner->counts().copied_out == 0);
  const at::NoGradGuard no_grad;
  net.forward(offloaded(inner));
  CHECK(inner->counts().copied_out == 0);
}

TEST_CASE("autocast's casts of weights wait in host memory too") {
  Fixture fixture;
  const Net net;
  const AutocastGuard autocast(at::kCPU, true, at::kBFloat16);
  const Store store = store_of();
  const Tensors wanted = net.gradients(plain);
  check_equal(wanted, net.gradients(offloaded(store)));
  const SavedTensorScope ledger(saved_tensor_ledger());
  const at::Tensor out = net.forward(offloaded(store));
  // The input, h, g and y in bf16, and two casts of weights.
  CHECK(store->counts().host_bytes == kDepth * (kSegment / 2 + 2 * 2 * kWidth * kInner));
  CHECK(cpu_accounts().live().of(Category::casts) == 2 * 2 * kWidth * kInner);
}

TEST_CASE("an exception in forward, in a copy or in backward leaves nothing behind", "[device]") {
  Fixture fixture;
  const Net net;
  struct Broken final : SideCopies {
    explicit Broken(int64_t& left) : calls_left(left) {}
    std::unique_ptr<SideCopy> begin(const at::Tensor& from, const at::Tensor& to) override {
      if (calls_left-- <= 0) throw std::runtime_error("the copy cannot begin");
      return works->begin(from, to);
    }
    int64_t& calls_left;
    std::unique_ptr<SideCopies> works = make_side_copies(test_device());
  };
  int64_t calls_left = INT64_MAX;
  const auto store =
      std::make_shared<OffloadStore>(0, [&](c10::Device) { return std::make_unique<Broken>(calls_left); });
  const Tensors wanted = net.gradients(plain);
  check_equal(wanted, net.gradients(offloaded(store)));
  for (const at::Tensor& one : net.leaves()) one.mutable_grad().reset();
  const int64_t live = DeviceMemory::live();
  const auto nothing_left = [&] {
    for (const at::Tensor& one : net.leaves()) one.mutable_grad().reset();
    CHECK(DeviceMemory::live() == live);
    CHECK(store->counts().host_bytes == 0);
    if (ledger_sees()) CHECK(offloaded_on_host() == 0);
  };
  CHECK_THROWS_WITH(net.forward([&](int i, const SubtreeFn& fn, Tensors&& in) {
    const SubtreeFn fails = [&, i](Tensors&& x) {
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
  const int64_t device = DeviceMemory::live(), cpu = cpu_accounts().live_bytes(),
                host = host_accounts().live_bytes();
  for (int step = 0; step < 1000; ++step) {
    const at::Tensor out = net.forward(offloaded(store));
    if (step % 3 != 0) (void)torch::autograd::grad({out.sum()}, {net.x});
  }
  CHECK(DeviceMemory::live() == device);
  CHECK(cpu_accounts().live_bytes() == cpu);
  CHECK(host_accounts().live_bytes() == host);
  CHECK(store->counts().host_bytes == 0);
}

TEST_CASE("calls that go on are one segment", "[device]") {
  Fixture fixture;
  const Net net;
  const Store store = store_of();
  const Tensors wanted = net.gradients(plain);
  const RunSegment pairs = [&](int i, const SubtreeFn& fn, Tensors&& in) {
    return offload("net." + std::to_string(i), fn, std::move(in), store, /*goes_on=*/i % 2 == 1);
  };
  check_equal(wanted, net.gradients(pairs));
  CHECK(store->counts().fetched == 2 * 4);
  const SavedTensorScope ledger(saved_tensor_ledger());
  const at::Tensor out = net.forward(pairs);
  if (ledger_sees()) CHECK(saved_on_device() == 2 * kSegment);
}
