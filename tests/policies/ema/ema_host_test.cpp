// The EMA in host memory, with the CPU in the training device's place: the same bits as on the device, its
// exact bytes on both sides, and nothing lost between the threads.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/ema.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <algorithm>

#include "support/catch.h"
#include "support/device/delayed_staging_copies.h"
#include "support/device/test_device.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using dtk::test::DelayedStagingCopies;
using std::chrono::microseconds;

namespace {

constexpr int64_t kTrainable = 3 * 5 + 131 + 1;

struct OddWeights {
  at::Tensor matrix = at::randn({5, 3}).t().requires_grad_(true);  // dense, but not in its sizes' order
  at::Tensor fixed = at::full({5}, 7.0f);
  at::Tensor vector = at::randn({131}).requires_grad_(true);  // ends within a machine vector
  at::Tensor scalar = at::randn({}).requires_grad_(true);
  NamedTensors list() const {
    return {{"matrix", matrix}, {"fixed", fixed}, {"vector", vector}, {"scalar", scalar}};
  }
  void set(const std::vector<at::Tensor>& values) {
    at::NoGradGuard no_grad;
    matrix.copy_(values[0]);
    vector.copy_(values[1]);
    scalar.copy_(values[2]);
  }
  void fill(float value) { set({at::full({3, 5}, value), at::full({131}, value), at::full({}, value)}); }
};

std::vector<at::Tensor> random_values() {
  return {at::randn({3, 5}), at::randn({131}), at::randn({})};
}

std::unique_ptr<DelayedStagingCopies> engine(int64_t longest_microseconds = 100) {
  return std::make_unique<DelayedStagingCopies>(microseconds(longest_microseconds));
}

EmaOptions host_options(double decay, bool warmup, int64_t every = 1) {
  return {.decay = decay, .warmup = warmup, .every = every};
}

EmaOptions on_device(EmaOptions options) {
  options.device = EmaDevice::same;
  return options;
}

bool equal(const PolicyState& a, const PolicyState& b) {
  if (a.tensors.size() != b.tensors.size() || a.counters != b.counters) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].first != b.tensors[i].first || !at::equal(a.tensors[i].second, b.tensors[i].second))
      return false;
  }
  return true;
}

PolicyState copied(PolicyState state) {
  for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
  return state;
}

struct Live {
  int64_t device = cpu_accounts().live_bytes();
  int64_t host = host_accounts().live_bytes();
  friend bool operator==(const Live&, const Live&) = default;
};

}  // namespace

TEST_CASE("host EMA: the bits of the EMA on the device, though the weights change right after the copies") {
  OddWeights weights;
  const EmaOptions chosen = host_options(0.99, GENERATE(true, false), GENERATE(1, 3));
  Ema host(chosen, weights.list(), engine()), device(on_device(chosen), weights.list());
  for (int n = 0; n < 120; ++n) {
    const auto values = random_values();
    host.before_step();
    weights.fill(std::numeric_limits<float>::quiet_NaN());  // what a late copy would see
    weights.set(values);
    host.after_step();
    device.after_step();
    if (n % 40 == 17) CHECK(equal(host.state(), device.state()));
  }
  CHECK(equal(host.state(), device.state()));
}

TEST_CASE(
    "host EMA: without before_step a late copy sees the changed weights, so the wait is what protects") {
  OddWeights weights;
  const EmaOptions chosen = host_options(0.9, false);
  auto owned = engine(0);
  DelayedStagingCopies& copies = *owned;
  Ema host(chosen, weights.list(), std::move(owned)), device(on_device(chosen), weights.list());
  const bool waits = GENERATE(true, false);
  copies.close();  // no copy begins before it is waited for
  weights.fill(1.0f);
  host.after_step();
  device.after_step();
  if (waits) host.before_step();
  weights.fill(2.0f);
  copies.open();
  CHECK(equal(host.state(), device.state()) == waits);
}

TEST_CASE("host EMA: the device holds 4 bytes less per trainable parameter, the host those and the slots") {
  CountingAllocatorGuard guard;
  const OddWeights weights;
  const Live before;
  {
    const Ema device(on_device(host_options(0.9, true)), weights.list());
    REQUIRE(Live().device - before.device == 4 * kTrainable);  // the baseline has them
    REQUIRE(Live().host == before.host);
  }
  const Ema host(host_options(0.9, true), weights.list(), engine());
  constexpr int64_t kSlotBytes = 3 * 4 * 256;  // three slots of the largest parameter, 131, rounded up
  CHECK(Live().device == before.device);
  CHECK(Live().host - before.host == 4 * kTrainable + kSlotBytes);
  CHECK(host_accounts().live().items().at(Category::ema) ==
        std::map<std::string, int64_t>{{"shadow", 4 * kTrainable}, {"slots", kSlotBytes}});
  const PolicyReport report = host.report();
  CHECK(report.active);
  CHECK(report.device_bytes == 0);
  CHECK(report.host_bytes == 4 * kTrainable + kSlotBytes);
  CHECK(report.reason ==
        "fp32 average of 3 tensors in host memory, decay 0.9 with warm-up; saves 0.0 MB on cpu");
}

TEST_CASE("host EMA: the bits of a synchronous update in host memory, whatever device trains", "[device]") {
  const c10::Device device = dtk::test::test_device();
  const at::Tensor weight = at::randn({131, 7}).to(device).requires_grad_(true);
  const EmaOptions chosen = host_options(0.99, GENERATE(true, false), GENERATE(1, 3));
  Ema host(chosen, {{"weight", weight}}, device.is_cpu() ? engine() : nullptr);
  at::Tensor expected;
  {
    const HostCopyScope copy;
    expected = weight.detach().cpu().clone();
  }
  for (int64_t n = 0; n < 60; ++n) {
    const at::Tensor value = at::randn({131, 7});
    host.before_step();
    at::Tensor(weight.detach()).copy_(value);
    host.after_step();
    if ((n + 1) % chosen.every != 0) continue;
    double decay = 1;
    for (int64_t k = n + 1 - chosen.every; k <= n; ++k) decay *= ema_decay(chosen, k);
    expected.lerp_(value, 1.0 - decay);
  }
  const PolicyState state = host.state();
  CHECK(state.tensors.at(0).second.is_cpu());
  CHECK_VALUES(dtk::test::same_bits(state.tensors.at(0).second, expected));
}

TEST_CASE("both forms of the EMA have a phase of their own") {
  CountingAllocatorGuard guard;
  const OddWeights weights;
  const bool in_host_memory = GENERATE(true, false);
  Ema ema(host_options(0.9, true), weights.list(), in_host_memory ? engine() : nullptr);
  cpu_accounts().reset_phases("step");
  ema.before_step();
  ema.after_step();
  const std::vector<PhasePeak> phases = cpu_accounts().phases();
  CHECK(std::any_of(phases.begin(), phases.end(), [](const PhasePeak& one) { return one.name == "ema"; }));
}

TEST_CASE("host EMA: the report tells hidden from exposed time") {
  OddWeights weights;
  Ema host(host_options(0.9, false, 2), weights.list(), engine(3000));
  for (int n = 0; n < 8; ++n) host.before_step(), host.after_step();
  CHECK_THAT(host.report().reason,
             Catch::Contains("decay 0.9, one update every 2 steps; saves 0.0 MB on cpu, ") &&
                 Catch::Contains(" ms hidden and ") && Catch::EndsWith(" ms exposed on the host an update"));
}

TEST_CASE("host EMA: 1,000 updates leave the bytes of both tiers as they were") {
  CountingAllocatorGuard guard;
  OddWeights weights;
  Ema host(host_options(0.9, true), weights.list(), engine(0));
  const Live before;
  for (int n = 0; n < 1000; ++n) host.before_step(), host.after_step();
  CHECK(host.state().counters.at("updates") == 1000);
  CHECK(Live() == before);
}

TEST_CASE("host EMA: weights and averages trade places without a byte more, and back after an exception") {
  CountingAllocatorGuard guard;
  OddWeights weights;
  Ema host(host_options(0.5, false), weights.list(), engine());
  weights.fill(3.0f);
  host.after_step();
  const PolicyState averages = copied(host.state());
  const OddWeights raw = [&] {
    OddWeights copy;
    copy.set({weights.matrix, weights.vector, weights.scalar});
    return copy;
  }();
  const Live before;
  cpu_accounts().reset_phases("sampling");
  host_accounts().reset_phases("sampling");
  try {
    const auto exchange = host.sampling_weights();
    CHECK(at::equal(weights.matrix, averages.tensors[0].second));
    CHECK(at::equal(weights.vector, averages.tensors[1].second));
    CHECK(at::equal(weights.scalar, averages.tensors[2].second));
    CHECK(at::equal(weights.fixed, at::full({5}, 7.0f)));
    throw std::runtime_error("while sampling");
  } catch (const std::runtime_error&) {
  }
  CHECK(highest(host_accounts().phases()).peak.bytes == before.host);
  CHECK(Live() == before);
  CHECK(at::equal(weights.matrix, raw.matrix));
  CHECK(at::equal(weights.vector, raw.vector));
  CHECK(at::equal(weights.scalar, raw.scalar));
  CHECK(equal(host.state(), averages));
  cpu_accounts().reset_phases("sampling");
  { const auto exchange = host.sampling_weights(); }
  CHECK(highest(cpu_accounts().phases()).peak.bytes == before.device);
}

TEST_CASE("while weights and averages are exchanged, nothing that would take one for the other is allowed") {
  OddWeights weights;
  const bool in_host_memory = GENERATE(true, false);
  Ema ema(host_options(0.5, false), weights.list(), in_host_memory ? engine() : nullptr);
  weights.fill(3.0f);
  ema.after_step();
  const PolicyState before = copied(ema.state());
  const auto refused = [](const std::string& what) {
    return "policies.ema: " + what +
           " while weights and averages are exchanged; end the WeightExchange that sampling_weights() "
           "returned "
           "first";
  };
  {
    const auto exchange = ema.sampling_weights();
    CHECK_THROWS_WITH(ema.sampling_weights(), refused("a second exchange"));
    CHECK_THROWS_WITH(ema.before_step(), refused("a step"));
    CHECK_THROWS_WITH(ema.after_step(), refused("a step"));
    CHECK_THROWS_WITH(ema.state(), refused("state() was called"));
    CHECK_THROWS_WITH(ema.restore(before), refused("restore() was called"));
    CHECK_NOTHROW(ema.report());
  }
  CHECK(equal(ema.state(), before));
  CHECK(at::equal(weights.scalar.detach(), at::full({}, 3.0f)));
  { const auto again = ema.sampling_weights(); }
  CHECK_NOTHROW(ema.after_step());
}

TEST_CASE("host EMA: an exchange that fails leaves no parameter exchanged; on the way back it is told") {
  OddWeights weights;
  Ema host(host_options(0.5, false), weights.list(), engine());
  weights.fill(3.0f);
  host.after_step();
  const at::Tensor whole = weights.vector.detach();
  const auto cut = [&] {  // its memory is gone, so that slices of it cannot be made
    weights.vector.unsafeGetTensorImpl()->set_storage_keep_dtype(at::empty({1}).storage());
  };
  const auto mend = [&] { weights.vector.unsafeGetTensorImpl()->set_storage_keep_dtype(whole.storage()); };
  cut();
  CHECK_THROWS_WITH(host.sampling_weights(), Catch::Contains("out of bounds"));
  CHECK(at::equal(weights.matrix.detach(), at::full({3, 5}, 3.0f)));
  CHECK(at::equal(weights.scalar.detach(), at::full({}, 3.0f)));
  mend();
  {
    const auto exchange = host.sampling_weights();
    cut();
  }
  CHECK_THROWS_WITH(host.before_step(), Catch::Contains("out of bounds"));
  CHECK_THROWS_WITH(host.after_step(), Catch::Contains("out of bounds"));
  CHECK_THROWS_WITH(host.state(), Catch::Contains("out of bounds"));
}

TEST_CASE("host EMA: what fails in the background is thrown by the next step, and the end is clean") {
  OddWeights weights;
  auto owned = engine();
  std::string message;
  SECTION("a copy cannot begin") {
    message = "the copy cannot begin";
    owned->fail_begin = 7;
  }
  SECTION("a copy does not arrive") {
    message = "the copy does not arrive";
    owned->fail_wait = 7;
  }
  Ema host(host_options(0.5, false), weights.list(), std::move(owned));
  for (int n = 0; n < 2; ++n) host.before_step(), host.after_step();
  CHECK(host.state().counters.at("updates") == 2);
  host.after_step();
  CHECK_THROWS_WITH(host.state(), message);  // the 8th copy is of the third update
  CHECK_THROWS_WITH(host.before_step(), message);
  CHECK_THROWS_WITH(host.after_step(), message);
  CHECK_THROWS_WITH(host.sampling_weights(), message);
  CHECK_THROWS_WITH(host.report(), message);
}

TEST_CASE("host EMA: it ends while copies are on their way") {
  OddWeights weights;
  for (int i = 0; i < 10; ++i) {
    Ema host(host_options(0.5, false), weights.list(), engine(500));
    host.after_step();
  }
}

TEST_CASE("host EMA: a restored one continues bit for bit, also between two updates") {
  OddWeights weights, same;
  const EmaOptions chosen = host_options(0.99, true, 3);
  Ema first(chosen, weights.list(), engine()), second(chosen, same.list(), engine());
  const auto step = [](Ema& ema, OddWeights& its, const std::vector<at::Tensor>& values) {
    ema.before_step();
    its.set(values);
    ema.after_step();
  };
  for (int n = 0; n < 7; ++n) step(first, weights, random_values());
  second.restore(copied(first.state()));
  for (int n = 0; n < 7; ++n) {
    const auto values = random_values();
    step(first, weights, values);
    step(second, same, values);
  }
  CHECK(equal(first.state(), second.state()));
  CHECK(first.state().counters.at("updates") == 14);
}

TEST_CASE("host EMA: the state is the averages themselves, at rest") {
  CountingAllocatorGuard guard;
  OddWeights weights;
  Ema host(host_options(0.5, false), weights.list(), engine(1000));
  host.after_step();
  const Live before;
  const PolicyState state = host.state();
  CHECK(Live() == before);
  CHECK(counted_block(state.tensors[1].second)->tier == MemoryTier::host);
}

TEST_CASE("host EMA: two in one process do not mix") {
  OddWeights weights, others;
  const EmaOptions fast = host_options(0.5, false), slow = host_options(0.999, true, 2);
  Ema a(fast, weights.list(), engine()), b(slow, others.list(), engine());
  Ema a_device(on_device(fast), weights.list()), b_device(on_device(slow), others.list());
  for (int n = 0; n < 30; ++n) {
    a.before_step();
    b.before_step();
    weights.set(random_values());
    others.set(random_values());
    for (Ema* ema : {&a, &b, &a_device, &b_device}) ema->after_step();
  }
  CHECK(equal(a.state(), a_device.state()));
  CHECK(equal(b.state(), b_device.state()));
}

TEST_CASE(
    "host EMA: asked for with an engine it is in host memory; with device = same the engine is not used") {
  const OddWeights weights;
  EmaOptions asked = host_options(0.9, true);
  asked.enabled = Enabled::on;
  CHECK(Ema(asked, weights.list(), engine()).report().device_bytes == 0);
  CHECK(Ema(on_device(asked), weights.list(), engine()).report().device_bytes == 4 * kTrainable);
}

TEST_CASE("host EMA: a step that changed nothing is averaged out, as the flag beside the weights says") {
  OddWeights weights;
  const EmaOptions chosen = host_options(0.9, false, GENERATE(1, 3));
  Ema host(chosen, weights.list(), engine()), device(on_device(chosen), weights.list());
  const at::Tensor flag = at::zeros({});
  for (int n = 0; n < 60; ++n) {
    const auto values = random_values();
    host.before_step();
    flag.fill_(std::numeric_limits<float>::quiet_NaN());  // what a late copy would see
    weights.fill(std::numeric_limits<float>::quiet_NaN());
    weights.set(values);
    flag.fill_(n % 7 == 2 || n % 7 == 3 ? 1 : 0);
    host.after_step_unless(flag);
    device.after_step_unless(flag);
  }
  CHECK(equal(host.state(), device.state()));
}
