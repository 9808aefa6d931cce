// The EMA policy: its values, its bytes, and weights that always come back. Tests tagged [device] run on any.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/ema.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using dtk::test::DeviceMemory;
using dtk::test::on_cpu;
using dtk::test::test_device;

namespace {

struct Weights {
  at::Tensor a = at::full({3}, 1.0f, test_device()).requires_grad_(true);
  at::Tensor b = at::full({2, 2}, 2.0f, test_device()).requires_grad_(true);
  at::Tensor fixed = at::full({5}, 7.0f, test_device());
  NamedTensors list() const { return {{"a", a}, {"fixed", fixed}, {"b", b}}; }
  void fill(float value) {
    at::NoGradGuard no_grad;
    a.fill_(value);
    b.fill_(value);
  }
};

EmaOptions options(double decay, bool warmup) {
  return {.decay = decay, .warmup = warmup};
}

// The form on the training device.
EmaOptions same(double decay, bool warmup) {
  return {.decay = decay, .warmup = warmup, .device = EmaDevice::same};
}

bool holds(const at::Tensor& tensor, const at::Tensor& expected) {
  return at::equal(tensor.detach().cpu(), expected);
}

}  // namespace

TEST_CASE("the decay warms up as (1 + n) / (10 + n) and stops at the given one") {
  CHECK(ema_decay(options(0.995, true), 0) == 0.1);
  CHECK(ema_decay(options(0.995, true), 90) == Approx(0.91));
  CHECK(ema_decay(options(0.995, true), 100000) == 0.995);
  CHECK(ema_decay(options(0.995, false), 0) == 0.995);
}

TEST_CASE("an update moves the average by 1 - decay towards the weights; fixed tensors are left out",
          "[device]") {
  Weights weights;
  Ema ema(GENERATE(true, false) ? options(0.75, false) : same(0.75, false), weights.list());
  weights.fill(5.0f);
  ema.after_step();
  const PolicyState state = ema.state();
  REQUIRE(state.tensors.size() == 2);
  CHECK(state.tensors[0].first == "a");
  CHECK(state.tensors[1].first == "b");
  CHECK_VALUES(holds(state.tensors[0].second, at::full({3}, 2.0f)));      // 1 + 0.25 (5 - 1)
  CHECK_VALUES(holds(state.tensors[1].second, at::full({2, 2}, 2.75f)));  // 2 + 0.25 (5 - 2)
  CHECK(state.counters.at("updates") == 1);
}

TEST_CASE("the shadow costs exactly 4 bytes per trainable parameter; without the policy nothing") {
  CountingAllocatorGuard guard;
  const auto shadow = [] { return cpu_accounts().live().of(Category::ema); };
  const Weights weights;
  REQUIRE(shadow() == 0);  // the baseline has no such bytes
  const Ema ema(options(0.9, true), weights.list());
  CHECK(shadow() == 4 * (3 + 4));
  CHECK(ema.report().device_bytes == 28);
  CHECK(ema.report().active);
  CHECK(ema.report().host_bytes == 0);
  CHECK(ema.report().reason ==
        "training device is the CPU, nothing to move; fp32 average of 2 tensors on cpu, decay 0.9 with "
        "warm-up");
}

TEST_CASE(
    "on the training device the shadow takes 4 bytes per trainable parameter of it, in host memory none",
    "[device]") {
  CountingAllocatorGuard guard;
  const Weights weights;
  const int64_t before = DeviceMemory::live();
  {
    const Ema on_device(same(0.9, true), weights.list());
    CHECK(DeviceMemory::live() - before == 4 * (3 + 4));
    CHECK(on_device.report().device_bytes == 28);
    CHECK(on_device.report().host_bytes == 0);
  }
  CHECK(DeviceMemory::live() == before);
  if (on_cpu()) return;  // ema_host_test.cpp, through a staging copies
  const int64_t host_before = cpu_accounts().live_bytes();
  const Ema in_host_memory(options(0.9, true), weights.list());
  CHECK(DeviceMemory::live() == before);
  // The slots are pinned, by another allocator, which on the simulated device is in the books.
  CHECK(cpu_accounts().live_bytes() - host_before == 28 + (dtk::test::simulated() ? 2 * 16 : 0));
  CHECK(in_host_memory.report().device_bytes == 0);
  CHECK(in_host_memory.report().saved_bytes == 28);
}

TEST_CASE("device = \"same\" is the form on the training device, asked for or not") {
  const Weights weights;
  EmaOptions same{
      .enabled = Enabled::on, .decay = 0.5, .warmup = false, .every = 4, .device = EmaDevice::same};
  const PolicyReport report = Ema(same, weights.list()).report();
  CHECK(report.reason == "fp32 average of 2 tensors on cpu, decay 0.5, one update every 4 steps");
  CHECK(report.device_bytes == 28);
  Ema stepped(same, weights.list());
  const auto reason_after_step = [&] {
    stepped.before_step();
    stepped.after_step();
    return stepped.report().reason;
  };
  for (const char* steps : {"1 step", "2 steps", "3 steps"}) {
    CHECK(reason_after_step() == report.reason + ": none yet in " + steps +
                                     ", so it is still the weights that the run began with; lower "
                                     "policies.ema.every");
  }
  CHECK(reason_after_step() == report.reason);
  CHECK(report.host_bytes == 0);
}

TEST_CASE("with every = k the average moves each k-th step, by the product of the k decays") {
  Weights weights;
  EmaOptions third = options(0.99, GENERATE(true, false));
  third.every = 3;
  Ema ema(third, weights.list());
  at::Tensor expected = at::full({3}, 1.0f);
  for (int64_t n = 0; n < 9; ++n) {
    weights.fill(0.1f * static_cast<float>(n));
    ema.after_step();
    if (n % 3 == 2) {
      const double decay = ema_decay(third, n - 2) * ema_decay(third, n - 1) * ema_decay(third, n);
      expected.lerp_(weights.a.detach(), 1.0 - decay);
    }
    CHECK(at::equal(ema.state().tensors[0].second, expected));
    CHECK(ema.state().counters.at("updates") == n + 1);
  }
}

TEST_CASE("an update allocates nothing that stays and reads no value") {
  CountingAllocatorGuard guard;
  const Weights weights;
  Ema ema(options(0.9, true), weights.list());
  const int64_t before = cpu_accounts().live_bytes();
  for (int i = 0; i < 10; ++i) ema.after_step();
  CHECK(cpu_accounts().live_bytes() == before);
}

TEST_CASE("sampling weights trade places without a copy and come back, also after an exception", "[device]") {
  CountingAllocatorGuard guard;
  Weights weights;
  Ema ema(GENERATE(true, false) ? options(0.5, false) : same(0.5, false), weights.list());
  weights.fill(3.0f);
  ema.after_step();
  const int64_t before = DeviceMemory::live();
  {
    const auto exchange = ema.sampling_weights();
    CHECK_VALUES(holds(weights.a, at::full({3}, 2.0f)));
    CHECK_VALUES(holds(weights.fixed, at::full({5}, 7.0f)));
    CHECK(DeviceMemory::live() == before);
  }
  CHECK_VALUES(holds(weights.a, at::full({3}, 3.0f)));
  try {
    const auto exchange = ema.sampling_weights();
    throw std::runtime_error("while sampling");
  } catch (const std::runtime_error&) {
  }
  CHECK_VALUES(holds(weights.a, at::full({3}, 3.0f)));
  CHECK_VALUES(holds(ema.state().tensors[0].second, at::full({3}, 2.0f)));
}

TEST_CASE(
    "parameters that lie in one storage are exchanged without a neighbour's, and views of them see it") {
  CountingAllocatorGuard guard;
  const at::Tensor flat = at::arange(10, at::kFloat);
  const at::Tensor first = flat.narrow(0, 2, 3).requires_grad_(true);
  const at::Tensor second = flat.narrow(0, 5, 4).view({2, 2}).requires_grad_(true);
  const at::Tensor seen = at::full({3}, 1.0f).requires_grad_(true), view = seen.detach().view({3, 1});
  Ema ema(options(0.5, false), {{"first", first}, {"second", second}, {"seen", seen}});
  {
    at::NoGradGuard no_grad;
    flat.add_(8);
    seen.add_(8);
  }
  ema.after_step();
  const at::Tensor raw = flat.clone();
  const int64_t before = cpu_accounts().live_bytes();
  {
    const auto exchange = ema.sampling_weights();
    CHECK(at::equal(first.detach(), at::tensor({6.0f, 7.0f, 8.0f})));
    CHECK(at::equal(second.detach(), at::tensor({9.0f, 10.0f, 11.0f, 12.0f}).view({2, 2})));
    CHECK(at::equal(flat, at::tensor({8.0f, 9.0f, 6.0f, 7.0f, 8.0f, 9.0f, 10.0f, 11.0f, 12.0f, 17.0f})));
    CHECK(at::equal(view, at::full({3, 1}, 5.0f)));
    CHECK(first.storage().is_alias_of(flat.storage()));
    CHECK(cpu_accounts().live_bytes() == before);
  }
  CHECK(at::equal(flat, raw));
  CHECK(at::equal(view, at::full({3, 1}, 9.0f)));
  CHECK(at::equal(ema.state().tensors[0].second, at::tensor({6.0f, 7.0f, 8.0f})));
}

TEST_CASE("a view made while the averages are in place does not keep them there") {
  const at::Tensor w = at::full({3}, 1.0f).requires_grad_(true);
  Ema ema(options(0.5, false), {{"w", w}});
  at::Tensor(w.detach()).fill_(3.0f);
  ema.after_step();
  at::Tensor view;
  {
    const auto exchange = ema.sampling_weights();
    view = w.detach();
    CHECK(at::equal(view, at::full({3}, 2.0f)));
  }
  CHECK(at::equal(w.detach(), at::full({3}, 3.0f)));
}

TEST_CASE("a restored EMA continues bit for bit") {
  Weights weights, same;
  Ema ema(options(0.99, true), weights.list());
  for (int i = 0; i < 5; ++i) weights.fill(static_cast<float>(i)), ema.after_step();
  PolicyState state = ema.state();
  for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
  Ema other(options(0.99, true), same.list());
  other.restore(state);
  for (int i = 0; i < 3; ++i) {
    weights.fill(0.1f * static_cast<float>(i));
    same.fill(0.1f * static_cast<float>(i));
    ema.after_step();
    other.after_step();
  }
  CHECK(at::equal(ema.state().tensors[1].second, other.state().tensors[1].second));
}

TEST_CASE("what an EMA cannot do is refused with the reason") {
  const Weights weights;
  CHECK_THROWS_WITH(Ema(options(1.0, true), weights.list()),
                    "policies.ema.decay = 1 is out of range; allowed: [0, 1)");
  CHECK_THROWS_WITH(Ema({.every = 0}, weights.list()),
                    "policies.ema.every = 0 is out of range; allowed: [1, inf)");
  CHECK_THROWS_WITH(Ema({.pinned = false}, weights.list()),
                    "policies.ema.pinned = false has no use on the CPU, where no average is copied; allowed: "
                    "true, the default; remove policies.ema.pinned");
  CHECK_THROWS_WITH(
      Ema({.enabled = Enabled::on}, weights.list()),
      "policies.ema: asked for in host memory, but the training device is the CPU, so there is nothing to "
      "move; remove policies.ema.enabled or set policies.ema.device = \"same\"");
  Ema ema(options(0.9, true), weights.list());
  CHECK_THROWS_WITH(ema.restore({}), "policies.ema: the state has no count of updates");
  CHECK_THROWS_WITH(ema.restore(PolicyState{{}, {{"updates", 1}}}),
                    "policies.ema: 0 averages for 2 trainable parameters");
  CHECK_THROWS_WITH(
      ema.restore(PolicyState{{{"a", at::zeros({3})}, {"c", at::zeros({2, 2})}}, {{"updates", 1}}}),
      "policies.ema: no average for parameter b");
  CHECK_THROWS_WITH(
      ema.restore(PolicyState{{{"a", at::zeros({4})}, {"b", at::zeros({2, 2})}}, {{"updates", 1}}}),
      "policies.ema: the average of a is [4], the parameter is [3]");
}

TEST_CASE("ema: a state is read into its place, and not at all if it does not fit") {
  const Weights weights;
  Ema ema(options(0.9, true), weights.list());
  std::vector<const void*> places;
  const auto stored = [&](const char* name, const at::Tensor& tensor) {
    return StoredPolicyState::Entry{name, tensor.sizes().vec(), [&places, tensor](const at::Tensor& into) {
                                      places.push_back(into.const_data_ptr());
                                      into.copy_(tensor);
                                    }};
  };
  StoredPolicyState state;
  state.counters["updates"] = 3;
  state.tensors = {stored("b", at::full({2, 2}, 5.0f)), stored("a", at::full({4}, 7.0f))};
  CHECK_THROWS_WITH(ema.restore(state), "policies.ema: the average of a is [4], the parameter is [3]");
  CHECK(places.empty());
  state.tensors[1] = stored("a", at::full({3}, 7.0f));
  ema.restore(state);
  const NamedTensors averages = ema.state().tensors;
  CHECK(places ==
        std::vector<const void*>{averages[0].second.const_data_ptr(), averages[1].second.const_data_ptr()});
  CHECK(at::equal(averages[0].second, at::full({3}, 7.0f)));
  CHECK(at::equal(averages[1].second, at::full({2, 2}, 5.0f)));
}

TEST_CASE("ema: where there can be no average, that is an error if it was asked for, else a line") {
  const at::Tensor fixed = at::ones({2}), wide = at::ones({2, 3}, at::kDouble).requires_grad_(true);
  const auto [parameters, obstacle] = GENERATE_COPY(table<NamedTensors, std::string>(
      {{NamedTensors{{"fixed", fixed}}, "the model has no trainable parameter to average"},
       {NamedTensors{{"w", at::ones({2}).requires_grad_(true)}, {"d", wide}},
        "parameter d is Double with sizes [2, 3] and strides [3, 1] on cpu; allowed: Float without gaps on "
        "cpu, as the first one"}}));
  const NamedTensors list = parameters;
  const std::string reason = obstacle;
  CHECK_THROWS_WITH(
      Ema({.enabled = Enabled::on, .device = EmaDevice::same}, list),
      "policies.ema.enabled = true, but " + reason + "; change that, or set policies.ema.enabled = false");
  Ema ema({}, list);
  CHECK_FALSE(ema.report().active);
  CHECK(ema.report().reason == "no average: " + reason);
  ema.before_step();
  ema.after_step();
  CHECK(ema.sampling_weights() == nullptr);
  CHECK(ema.state().tensors.empty());
  CHECK_NOTHROW(ema.restore(ema.state()));
}

TEST_CASE("a step that changed nothing is averaged out, and any other has the bits of a plain one",
          "[device]") {
  Weights weights, others;
  const EmaOptions chosen = GENERATE(true, false) ? options(0.75, true) : same(0.75, true);
  Ema told(chosen, weights.list()), plain(chosen, others.list());
  const at::Tensor skipped = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(test_device()));
  for (int n = 0; n < 5; ++n) {
    told.before_step();
    plain.before_step();
    weights.fill(static_cast<float>(n) / 3);
    others.fill(static_cast<float>(n) / 3);
    told.after_step_unless(skipped);
    plain.after_step();
    for (size_t i = 0; i < 2; ++i)
      CHECK_VALUES(dtk::test::same_bits(told.state().tensors[i].second, plain.state().tensors[i].second));
  }
  const PolicyState before = told.state();
  std::vector<at::Tensor> averages;
  for (const auto& [name, average] : before.tensors) averages.push_back(average.clone());
  told.before_step();
  weights.fill(100.0f);
  skipped.fill_(1);
  told.after_step_unless(skipped);
  for (size_t i = 0; i < 2; ++i) CHECK_VALUES(at::equal(told.state().tensors[i].second, averages[i]));
  CHECK(told.state().counters.at("updates") == 6);
}
