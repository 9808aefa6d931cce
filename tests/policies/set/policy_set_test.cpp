// All policies together: their order, their scopes, and nothing left behind, whatever throws.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <dtk/models/dit.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/ema.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "support/catch.h"
#include "support/device/delayed_staging_copies.h"
#include "support/error_text.h"
#include "support/policies/small_dit.h"
#include "support/policies/small_subject.h"

using namespace dtk::policies;
using dtk::models::Dit;
using dtk::test::all_on;
using dtk::test::DelayedStagingCopies;
using dtk::test::error_text;
using dtk::test::kPaths;
using dtk::test::small_subject;

namespace {

struct Thrown : std::runtime_error {
  Thrown() : std::runtime_error("thrown by the test") {}
};

Dit make_dit() {
  return dtk::test::small_dit(/*depth=*/2, /*hidden=*/16, /*patch=*/4, /*mlp_dropout=*/0.1);
}

/// A DiT with policies, and a training step as a program makes it. What is set here runs in the midst of a
/// module: after its attention, with tensors saved and the path set.
class Net {
 public:
  explicit Net(const PolicyOptions& options, std::unique_ptr<StagingCopies> engine = nullptr)
      : policies_(options, subject(), seam_, std::move(engine)) {
    dit_.seam.run = [this, run = seam_.run](std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
      Tensors outputs = run(path, fn, std::move(inputs));
      if (on_output && path == "blocks.0") on_output(outputs[0]);
      return outputs;
    };
    dit_.seam.attention = [this, attention = seam_.attention](at::Tensor q, at::Tensor k, at::Tensor v,
                                                              const AttentionCall& call) {
      at::Tensor out = attention(std::move(q), std::move(k), std::move(v), call);
      if (in_attention && module_path() == "blocks.1") in_attention();
      return out;
    };
  }

  at::Tensor forward() {
    const auto scope = policies_.forward_scope();
    const at::Tensor x = at::ones({3, 1, 8, 8}), t = at::full({3}, 500.0), y = at::arange(3);
    return dit_.forward(x, t, y, /*training=*/true).pow(2).mean();
  }
  void update() {
    policies_.before_step();
    {
      at::NoGradGuard no_grad;
      for (const auto& [name, parameter] : dit_.parameters()) {
        if (parameter.grad().defined()) at::Tensor(parameter).sub_(parameter.grad(), 1e-3);
      }
    }
    release_gradients();
    policies_.after_step();
  }
  void step() {
    const SavedTensorScope ledger(saved_tensor_ledger());
    torch::autograd::backward({forward()}, {});
    update();
  }
  void release_gradients() {
    for (const auto& [name, parameter] : dit_.parameters()) parameter.mutable_grad().reset();
  }
  std::vector<at::Tensor> gradients() {
    at::manual_seed(9);
    torch::autograd::backward({forward()}, {});
    std::vector<at::Tensor> all;
    for (const auto& [name, parameter] : dit_.parameters()) {
      if (parameter.requires_grad()) all.push_back(parameter.grad());
    }
    release_gradients();
    return all;
  }
  /// Waits for what runs beside the training.
  std::vector<PolicyReport> reports() const { return policies_.reports(); }
  const Dit& dit() const { return dit_; }

  std::function<void()> in_attention;
  std::function<void(const at::Tensor&)> on_output;

 private:
  Subject subject() const { return {at::kCPU, dit_.parameters(), dit_.paths()}; }
  Dit dit_ = make_dit();
  Seam seam_;
  PolicySet policies_;
};

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return true;
}

std::string random_state() {
  return generator_state(at::globalContext().defaultGenerator(at::kCPU));
}

/// The state of thread and process that policies change for a while, without random state.
struct AmbientState {
  bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
  at::ScalarType dtype = at::autocast::get_autocast_dtype(at::kCPU);
  bool grad = at::GradMode::is_enabled();
  bool no_layers = SavedTensorStack::current().empty();
  bool callbacks = at::hasThreadLocalCallbacks();
  std::string path = module_path();
  int64_t bytes = cpu_accounts().live_bytes();
  int64_t host_bytes = host_accounts().live_bytes();
  friend bool operator==(const AmbientState&, const AmbientState&) = default;
};

}  // namespace

TEST_CASE("policy set: reports come in the order of the options, also of what is switched off") {
  const std::vector<std::string> order = {"precision", "attention", "fusion", "ema", "checkpoint"};
  for (int on = 0; on < 32; ++on) {
    CAPTURE(on);
    PolicyOptions options = PolicyOptions::all_off();
    const PolicyOptions chosen = all_on();
    if ((on & 1) != 0) options.precision = chosen.precision;
    if ((on & 2) != 0) options.attention = chosen.attention;
    if ((on & 4) != 0) options.fusion = chosen.fusion;
    if ((on & 8) != 0) options.ema = chosen.ema;
    if ((on & 16) != 0) options.checkpoint = chosen.checkpoint;
    Seam seam;
    const PolicySet policies(options, small_subject(), seam);
    const auto reports = policies.reports();
    REQUIRE(reports.size() == 5);
    for (size_t i = 0; i < 5; ++i) {
      CHECK(reports[i].policy == order[i]);
      CHECK(reports[i].active == ((on >> i & 1) != 0));
    }
    if ((on & 16) == 0) CHECK(reports[4].reason == "switched off: policies.checkpoint.enabled = false");
  }
}

TEST_CASE("policy set: the scope that began last ends first") {
  PolicySet policies = [] {
    Seam seam;
    return PolicySet(all_on(), small_subject(), seam);
  }();
  // Clearing the cache of casts, which is how the scope of precision ends, frees the weight. Attention is the
  // one that watches operators.
  static bool freed, watched;
  freed = watched = false;
  float value[1] = {1.0F};
  const auto free = [](void*) {
    freed = true;
    watched = at::hasThreadLocalCallbacks();
  };
  {
    const auto scope = policies.forward_scope();
    CHECK(at::hasThreadLocalCallbacks());
    at::linear(at::ones({1, 1}), at::from_blob(value, {1, 1}, free).requires_grad_(true));
    REQUIRE_FALSE(freed);
  }
  CHECK(freed);
  CHECK_FALSE(watched);
}

TEST_CASE("policy set: a forward pass that throws puts everything back") {
  const AmbientState before;
  Seam seam;
  PolicySet policies(all_on(), small_subject(), seam);
  try {
    const auto scope = policies.forward_scope();
    CHECK(at::autocast::is_autocast_enabled(at::kCPU));
    CHECK(at::hasThreadLocalCallbacks());
    seam.run("blocks.0", [](Tensors&&) -> Tensors { throw Thrown(); }, {at::ones({2})});
  } catch (const Thrown&) {
  }
  CHECK((AmbientState() == before));
}

TEST_CASE("policy set: a seam that holds policies is refused and left as it was") {
  Seam seam;
  PolicyOptions first = all_on();
  SECTION("the first policy is in it") {}
  SECTION("a later one is") {
    first.precision.enabled = Enabled::off;
  }
  const PolicySet policies(first, small_subject(), seam);
  const std::vector<std::string> names = seam.policies;
  const std::string taken = names.front();
  CHECK(error_text<PolicyError>([&] { PolicySet(all_on(), small_subject(), seam); }) ==
        "policies." + taken + " is in this model already; apply each policy once");
  CHECK(seam.policies == names);
  const at::NoGradGuard no_grad;  // with gradients it would have to be in a forward scope
  CHECK_NOTHROW(seam.run("blocks.0", [](Tensors&& in) { return std::move(in); }, {at::ones({2})}));
}

TEST_CASE("policy set: what a training was asked for and acts in none is refused") {
  PolicyOptions options = all_on();
  options.inference.enabled = Enabled::on;
  Seam seam;
  CHECK(
      error_text<PolicyError>([&] { PolicySet(options, small_subject(), seam); }) ==
      "policies.inference.enabled = true has no effect in a training: it acts in passes without gradient of "
      "a model that is trained; leave it at \"default\", by which it does so");
  CHECK(seam.policies.empty());
  Subject trained = small_subject();
  trained.training = false;
  CHECK_NOTHROW(PolicySet(options, trained, seam));
}

TEST_CASE("policy set: a module sees its path, in forward, when it is recomputed, and in what the seam did") {
  const SavedTensorEngineGuard engine;
  std::vector<std::string> within, outside;
  Seam seam;
  seam.run = [&](std::string_view, const ModuleFn& fn, Tensors&& inputs) {
    outside.push_back(module_path());
    return fn(std::move(inputs));
  };
  PolicySet policies(all_on(), small_subject(), seam);
  const ModuleFn fn = [&](Tensors&& in) {
    within.push_back(module_path());
    in[0] = in[0].exp().sin();
    return std::move(in);
  };
  const ModulePathScope around("loss");
  const at::Tensor x = at::ones({2}).requires_grad_(true);
  auto scope = policies.forward_scope();
  Tensors out = seam.run("blocks.0", fn, {x});
  out = seam.run("blocks.1", fn, std::move(out));
  scope.reset();
  CHECK(module_path() == "loss");
  CHECK(within == std::vector<std::string>{"blocks.0", "blocks.1"});
  torch::autograd::backward({out[0].sum()}, {});
  CHECK(within == std::vector<std::string>{"blocks.0", "blocks.1", "blocks.1", "blocks.0"});
  CHECK(outside == within);
  CHECK(module_path() == "loss");
}

TEST_CASE("policy set: an exchange within a forward pass's scope leaves no cast of the other weights") {
  const at::Tensor x = at::ones({1, 2}), w = at::ones({1, 2}).requires_grad_(true);
  PolicyOptions options = PolicyOptions::all_off();
  options.precision.enabled = options.ema.enabled = Enabled::on;
  options.precision.fp32 = {};
  options.ema = {.enabled = Enabled::on, .decay = 0.5, .warmup = false, .device = EmaDevice::same};
  Seam seam;
  PolicySet policies(options, {at::kCPU, {{"w", w}}, kPaths}, seam);
  at::Tensor(w.detach()).fill_(3.0f);
  policies.after_step();  // the average is 2
  const auto scope = policies.forward_scope();
  CHECK(at::linear(x, w).item<float>() == 6.0f);
  {
    const auto exchange = policies.sampling_weights();
    CHECK(at::linear(x, w).item<float>() == 4.0f);
  }
  CHECK(at::linear(x, w).item<float>() == 6.0f);
}

TEST_CASE("policy set: 1,000 steps with all policies on leave the live bytes as they were") {
  const CountingAllocatorGuard counting;
  const SavedTensorEngineGuard engine;
  const bool in_host_memory = GENERATE(false, true);  // the EMA, with the CPU in a device's place
  CAPTURE(in_host_memory);
  PolicyOptions options = all_on();
  if (in_host_memory) options.ema.device = EmaDevice::cpu;
  Net net(options,
          in_host_memory ? std::make_unique<DelayedStagingCopies>(std::chrono::microseconds(0)) : nullptr);
  const CheckpointCounts counts = checkpoint_counts();
  const auto live = [&] {
    net.reports();
    return std::pair(cpu_accounts().live_bytes(), host_accounts().live_bytes());
  };
  for (int i = 0; i < 3; ++i) net.step();
  const auto before = live();
  for (int i = 0; i < 1000; ++i) {
    net.step();
    if (i % 100 == 0) CHECK(live() == before);
  }
  CHECK(live() == before);
  CHECK(checkpoint_counts().recomputes - counts.recomputes == 2 * 1003);
  CHECK((net.reports()[3].host_bytes > 0) == in_host_memory);
}

TEST_CASE("policy set: an exception leaves no state and no byte behind, and the next step is as ever") {
  const CountingAllocatorGuard counting;
  const SavedTensorEngineGuard engine;
  Net net(all_on());
  const bool is_first_step = GENERATE(true, false);  // the first one is watched for stored attention
  CAPTURE(is_first_step);
  if (!is_first_step) net.step();
  const AmbientState before;
  SECTION("in forward") {
    std::string random;
    net.in_attention = [&] {
      CHECK(at::autocast::is_autocast_enabled(at::kCPU));
      random = random_state();
      throw Thrown();
    };
    CHECK_THROWS_AS(net.step(), Thrown);
    CHECK(random_state() == random);  // neither rewound nor drawn from
  }
  SECTION("in a hook of backward") {
    net.on_output = [&](const at::Tensor& output) {
      output.register_hook([](const at::Tensor&) -> at::Tensor { throw Thrown(); });
    };
    at::Tensor loss = net.forward();
    const std::string random = random_state();
    CHECK_THROWS_AS(torch::autograd::backward({loss}, {}), Thrown);
    CHECK(random_state() == random);
  }
  SECTION("in a recomputation") {
    at::Tensor loss = net.forward();
    const std::string random = random_state();
    const CheckpointCounts counts = checkpoint_counts();
    net.in_attention = [&] {
      CHECK(at::autocast::is_autocast_enabled(at::kCPU));  // as in forward
      CHECK(random_state() != random);
      throw Thrown();
    };
    CHECK_THROWS_AS(torch::autograd::backward({loss}, {}), Thrown);
    CHECK(checkpoint_counts().recomputes == counts.recomputes + 1);
    CHECK(random_state() == random);
  }
  net.in_attention = nullptr;
  net.on_output = nullptr;
  net.release_gradients();
  CHECK((AmbientState() == before));
  Net untouched(all_on());
  if (!is_first_step) {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < net.dit().parameters().size(); ++i)
      at::Tensor(untouched.dit().parameters()[i].second).copy_(net.dit().parameters()[i].second);
  }
  CHECK(equal(net.gradients(), untouched.gradients()));
}

TEST_CASE("policy set: an exception in the thread that copies for the average leaves nothing behind either") {
  const CountingAllocatorGuard counting;
  const SavedTensorEngineGuard engine;
  PolicyOptions options = all_on();
  options.ema.device = EmaDevice::cpu;  // in host memory, with the CPU in a device's place
  const bool in_begin = GENERATE(true, false);
  CAPTURE(in_begin);
  const std::vector<at::Tensor> gradients = Net(all_on()).gradients();
  const AmbientState before;
  {
    auto copies = std::make_unique<DelayedStagingCopies>(std::chrono::microseconds(100));
    (in_begin ? copies->fail_begin : copies->fail_wait) = 3;
    Net net(options, std::move(copies));
    CHECK(AmbientState().host_bytes > before.host_bytes);
    std::string random;
    const auto steps = [&] {
      for (int i = 0; i < 3; ++i) {
        torch::autograd::backward({net.forward()}, {});
        random = random_state();
        net.update();
      }
    };
    CHECK_THROWS_WITH(steps(), in_begin ? "the copy cannot begin" : "the copy does not arrive");
    CHECK(random_state() == random);
    CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    CHECK(at::GradMode::is_enabled());
  }
  CHECK((AmbientState() == before));
  CHECK(equal(Net(all_on()).gradients(), gradients));
}
