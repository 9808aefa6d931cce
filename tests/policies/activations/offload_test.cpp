// Offloaded segments: bytes on the device and in host memory, and gradients as in the plain run.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/offload.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/catch.h"
#include "support/policies/offload_net.h"

using namespace dtk::policies;
using namespace dtk::test;

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
  CHECK(grown(plain) == kNetDepth * kNetSegment);
  CHECK(grown(offloaded(store)) == kNetSegment);
  CHECK(store->counts().host_bytes == 0);  // the graph is gone
  CHECK(store->counts().max_host_bytes == kNetDepth * kNetSegment);
  CHECK(store->counts().copied_out == kNetDepth * 4);
  CHECK(store->counts().copied_out_bytes == kNetDepth * kNetSegment);

  const at::Tensor out = net.forward(offloaded(store));
  CHECK(store->counts().host_bytes == kNetDepth * kNetSegment);
  if (ledger_sees()) {
    CHECK(saved_on_device() == kNetSegment);
    CHECK(offloaded_on_host() == kNetDepth * kNetSegment);
  }
}

TEST_CASE("gradients are those of the plain run, and all but the last segment is fetched", "[device]") {
  Fixture fixture;
  const Net net;
  const Store store = store_of();
  const Tensors wanted = net.gradients(plain);
  for (int step = 1; step <= 3; ++step) {
    check_equal(wanted, net.gradients(offloaded(store)));
    CHECK(store->counts().fetched == step * (kNetDepth - 1) * 4);
    CHECK(store->counts().host_bytes == 0);
  }
}

TEST_CASE("while backward runs, the device holds one segment between two, and two within one", "[device]") {
  Fixture fixture;
  const Net net;
  const Store store = store_of();
  const SavedTensorScope ledger(saved_tensor_ledger());
  std::vector<int64_t> between, within, host;
  const RunSegment watched = [&](int i, const ModuleFn& fn, Tensors&& in) {
    const ModuleFn probed = [&, fn](Tensors&& deep) {
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
  REQUIRE(between.size() == kNetDepth);
  REQUIRE(within.size() == kNetDepth);
  // When the gradient of `down` is there, y and g are freed; x and h wait, and the segment before has come.
  for (size_t i = 0; i < kNetDepth; ++i) {
    const auto earlier = kNetDepth - 1 - static_cast<int64_t>(i);
    CHECK(host[i] == earlier * kNetSegment + kNarrow + kWide);
    if (!ledger_sees()) continue;
    CHECK(between[i] == kNetSegment);
    CHECK(within[i] == kNarrow + kWide + (earlier > 0 ? kNetSegment : 0));
  }
}

TEST_CASE("storages of fewer bytes stay on the device", "[device]") {
  Fixture fixture;
  const Net net;
  const Tensors wanted = net.gradients(plain);
  using Case = std::pair<int64_t, int64_t>;  // least bytes, bytes of a segment that go
  const Case one = GENERATE(Case{kNarrow, kNetSegment}, Case{kNarrow + 1, 2 * kWide}, Case{kWide, 2 * kWide},
                            Case{kWide + 1, 0});
  CAPTURE(one.first);
  const Store store = store_of(one.first);
  {
    const SavedTensorScope ledger(saved_tensor_ledger());
    const at::Tensor out = net.forward(offloaded(store));
    CHECK(store->counts().host_bytes == kNetDepth * one.second);
    if (ledger_sees()) CHECK(saved_on_device() == kNetDepth * (kNetSegment - one.second) + one.second);
  }
  check_equal(wanted, net.gradients(offloaded(store)));
}

TEST_CASE("a storage that several tensors lie in or several segments save is copied once; parameters never",
          "[device]") {
  Fixture fixture;
  const at::Tensor w = leaf({3, kRows, kWidth}), shared = leaf({kRows, kWidth});
  const ModuleFn fn = [&](Tensors&& in) {
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

TEST_CASE("a segment that recomputes within one that offloads has its inputs and kept results in host memory",
          "[device]") {
  Fixture fixture;
  const Net net;
  const Tensors wanted = net.gradients(plain);
  const Store store = store_of();
  const auto kept = std::make_shared<KeptResults>(std::vector<std::string>{"aten::gelu"});
  const auto run = [&](const std::shared_ptr<KeptResults>& results) -> RunSegment {
    return [&, results](int i, const ModuleFn& fn, Tensors&& in) {
      const ModuleFn recomputed = [&, results](Tensors&& deep) {
        return checkpoint("net.inner", fn, std::move(deep), results);
      };
      return offload("net." + std::to_string(i), recomputed, std::move(in), store);
    };
  };
  {
    const at::Tensor out = net.forward(run(nullptr));
    CHECK(store->counts().host_bytes == kNetDepth * kNarrow);
  }
  {
    const at::Tensor out = net.forward(run(kept));
    CHECK(store->counts().host_bytes == kNetDepth * (kNarrow + kWide));
  }
  const int64_t copied = store->counts().copied_out;
  check_equal(wanted, net.gradients(run(nullptr)));
  check_equal(wanted, net.gradients(run(kept)));
  CHECK(store->counts().copied_out == copied + kNetDepth * 3);  // what is recomputed is not copied
  CHECK(store->counts().host_bytes == 0);
}

TEST_CASE(
    "a leaf that was changed before forward is the input of such a segment, and changed after is refused",
    "[device]") {
  Fixture fixture;
  const at::Tensor x = leaf({kRows, kWidth}), w = leaf({kWidth, kWidth});
  {
    const at::NoGradGuard no_grad;
    x.mul_(2);
  }
  const ModuleFn fn = [&](Tensors&& in) { return Tensors{at::matmul(in[0], w).sin() * in[0]}; };
  const auto run = [&](const RunSegment& how) { return how(0, fn, {x})[0].sum(); };
  const Store store = store_of();
  const RunSegment both = [&](int, const ModuleFn& inner, Tensors&& in) {
    const ModuleFn recomputed = [&](Tensors&& deep) { return checkpoint("inner", inner, std::move(deep)); };
    return offload("outer", recomputed, std::move(in), store);
  };
  check_equal(torch::autograd::grad({run(plain)}, {x, w}), torch::autograd::grad({run(both)}, {x, w}));
  const at::Tensor loss = run(both);
  if (!on_cpu()) return;  // there the write would not wait for the copy beside it; it is refused either way
  const at::NoGradGuard no_grad;
  x.mul_(2);
  CHECK_THROWS_AS(torch::autograd::grad({loss}, {x, w}), c10::Error);
}

TEST_CASE("within a segment of either kind, and without grad mode, the outer one decides", "[device]") {
  Fixture fixture;
  const Net net;
  const Tensors wanted = net.gradients(plain);
  const Store outer = store_of(), inner = store_of();
  check_equal(wanted, net.gradients([&](int, const ModuleFn& fn, Tensors&& in) {
    const ModuleFn deep = [&](Tensors&& x) { return offload("inner", fn, std::move(x), inner); };
    return offload("outer", deep, std::move(in), outer);
  }));
  CHECK(outer->counts().copied_out == kNetDepth * 4);
  CHECK(inner->counts().copied_out == 0);
  check_equal(wanted, net.gradients([&](int, const ModuleFn& fn, Tensors&& in) {
    const ModuleFn deep = [&, fn](Tensors&& x) { return offload("inner", fn, std::move(x), inner); };
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
  CHECK(store->counts().host_bytes == kNetDepth * (kNetSegment / 2 + 2 * 2 * kWidth * kInner));
  CHECK(cpu_accounts().live().of(Category::casts) == 2 * 2 * kWidth * kInner);
}

TEST_CASE("calls that go on are one segment", "[device]") {
  Fixture fixture;
  const Net net;
  const Store store = store_of();
  const Tensors wanted = net.gradients(plain);
  const RunSegment pairs = [&](int i, const ModuleFn& fn, Tensors&& in) {
    return offload("net." + std::to_string(i), fn, std::move(in), store, /*goes_on=*/i % 2 == 1);
  };
  check_equal(wanted, net.gradients(pairs));
  CHECK(store->counts().fetched == 2 * 4);
  const SavedTensorScope ledger(saved_tensor_ledger());
  const at::Tensor out = net.forward(pairs);
  if (ledger_sees()) CHECK(saved_on_device() == 2 * kNetSegment);
}
