// Attention without stored weights: what is allocated, what is refused, what is listed.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <dtk/policies/attention.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

AttentionOptions with(Enabled enabled) {
  AttentionOptions options;
  options.enabled = enabled;
  return options;
}

at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, make_generator(at::kCPU, seed), at::kFloat).set_requires_grad(true);
}

// A module "attn" that calls the seam, or what `direct` does instead.
struct Net {
  explicit Net(AttentionOptions options) : policy(options) { policy.apply(seam); }

  at::Tensor forward(double dropout) {
    const auto scope = policy.forward_scope();
    return seam.run("attn",
                    [&](Tensors&& in) {
                      return Tensors{direct ? direct(in[0], in[1], in[2])
                                            : seam.attention(in[0], in[1], in[2], {.dropout = dropout})};
                    },
                    {q, k, v})[0];
  }

  const at::Tensor q = random({2, 4, 64, 8}, 1), k = random({2, 4, 64, 8}, 2), v = random({2, 4, 64, 8}, 3);
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)> direct;
  Seam seam;
  AttentionPolicy policy;
};

int64_t largest_allocation_of_step(Net& net) {
  cpu_accounts().start_event_log();
  at::Tensor loss = net.forward(0.0).sum();
  torch::autograd::backward({loss}, {});
  int64_t largest = 0;
  for (const MemoryEvent& event : cpu_accounts().stop_event_log()) {
    if (event.kind == MemoryEvent::Kind::birth) largest = std::max(largest, event.bytes);
  }
  return largest;
}

std::string error_of(Net& net, double dropout = 0.0) {
  try {
    net.forward(dropout);
  } catch (const PolicyError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("materialised attention is LibTorch's own, with and without a mask") {
  const at::Tensor q = random({2, 4, 6, 8}, 1), k = random({2, 4, 9, 8}, 2), v = random({2, 4, 9, 8}, 3);
  const at::Tensor attend = at::rand({2, 1, 6, 9}, make_generator(at::kCPU, 4), at::kFloat) > 0.3;
  for (const std::optional<at::Tensor>& mask :
       {std::optional<at::Tensor>(), std::optional(attend), std::optional(at::where(attend, 0.5, -2.0))}) {
    const at::Tensor ours = materialised_attention(q, k, v, {.mask = mask});
    CHECK(at::allclose(ours, at::scaled_dot_product_attention(q, k, v, mask), 1e-5, 1e-6));
  }
  const at::Tensor causal = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true, 0.7);
  CHECK(at::allclose(materialised_attention(q, k, v, {.causal = true, .scale = 0.7}), causal, 1e-5, 1e-6));
  CHECK_FALSE(at::allclose(materialised_attention(q, k, v, {.causal = true}), causal, 1e-5, 1e-6));
  CHECK_THROWS_WITH(materialised_attention(q, k, v, {.mask = attend, .causal = true}),
                    Catch::StartsWith("attention: causal beside a mask; put both into the mask"));
}

TEST_CASE("causal attention runs fused and makes no tensor of T x T; said by a mask it would") {
  CountingAllocatorGuard counting;
  const Enabled enabled = GENERATE(Enabled::on, Enabled::off);
  Net net(with(enabled));
  const auto causal = [&](const AttentionCall& call) {
    cpu_accounts().start_event_log();
    const auto scope = net.policy.forward_scope();
    const at::Tensor out = net.seam.attention(net.q, net.k, net.v, call);
    torch::autograd::backward({out.sum()}, {});
    std::vector<int64_t> squares;  // T x T = 4,096: bytes of a mask, or of 8 heads' weights in fp32
    for (const MemoryEvent& event : cpu_accounts().stop_event_log()) {
      if (event.kind == MemoryEvent::Kind::birth &&
          (event.bytes == 64 * 64 || event.bytes == 8 * 64 * 64 * 4))
        squares.push_back(event.bytes);
    }
    return squares;
  };
  if (enabled == Enabled::on) {
    CHECK(causal({.causal = true}).empty());
    CHECK(net.policy.report().reason == "fused kernels, no weights are stored");
  } else {
    const std::vector<int64_t> squares = causal({.causal = true});
    CHECK(std::count(squares.begin(), squares.end(), 64 * 64) == 1);
    CHECK(std::count(squares.begin(), squares.end(), 8 * 64 * 64 * 4) >= 2);
  }
}

TEST_CASE("what a call of the seam says reaches the kernel, whichever library spells it") {
  const at::Tensor q = random({1, 2, 6, 8}, 1), k = random({1, 2, 6, 8}, 2), v = random({1, 2, 6, 8}, 3);
  struct AnotherCall {
    std::optional<at::Tensor> mask = {};
    double dropout = 0;
    bool causal = false;
    std::optional<double> scale = {};
    operator AttentionCall() const { return {mask, dropout, causal, scale}; }
  };
  const std::function<at::Tensor(at::Tensor, at::Tensor, at::Tensor, const AnotherCall&)> from_outside =
      Seam().attention;
  const at::Tensor wanted = at::scaled_dot_product_attention(q, k, v, {}, 0.0, true, 0.5);
  CHECK(at::equal(from_outside(q, k, v, {.causal = true, .scale = 0.5}), wanted));
  const AnotherCall other = AttentionCall{.causal = true, .scale = 0.5};
  CHECK(other.causal);
  CHECK(other.scale == 0.5);
}

TEST_CASE("with the policy no allocation of a step is as large as the weights; without it one is") {
  CountingAllocatorGuard counting;
  const int64_t weights_in_bf16 = 2 * 4 * 64 * 64 * 2;
  Net fused(with(Enabled::by_default)), materialised(with(Enabled::off));
  CHECK(largest_allocation_of_step(materialised) == 2 * weights_in_bf16);
  CHECK(largest_allocation_of_step(fused) < weights_in_bf16);
}

TEST_CASE("the fused step gives the gradients of the materialised one within rounding") {
  Net fused(with(Enabled::by_default)), materialised(with(Enabled::off));
  for (Net* net : {&fused, &materialised}) torch::autograd::backward({net->forward(0.0).pow(2).sum()}, {});
  CHECK(at::allclose(fused.q.grad(), materialised.q.grad(), 1e-4, 1e-5));
  CHECK(at::allclose(fused.v.grad(), materialised.v.grad(), 1e-4, 1e-5));
}

TEST_CASE("attention without a kernel is refused where the policy was asked for") {
  Net net(with(Enabled::on));
  CHECK(error_of(net) == "accepted");
  CHECK(error_of(net, 0.1) ==
        "policies.attention.enabled = true, but LibTorch has no fused kernel for the attention of the model "
        "(q [2, 4, 64, 8] Float on cpu, dropout 0.1) and would store its weights; set the dropout of "
        "attention to 0, or set policies.attention.enabled = \"default\", which runs and lists it");
}

TEST_CASE("the advice of a refusal is of its cause") {
  Net net(with(Enabled::on));
  const AttentionBackendGuard no_kernel(
      {.flash = false, .memory_efficient = false, .cudnn = false, .math = true});
  CHECK(
      error_of(net) ==
      "policies.attention.enabled = true, but LibTorch has no fused kernel for the attention of the model (q "
      "[2, 4, 64, 8] Float on cpu) and would store its weights; give q, k and v one dtype, a last dimension "
      "without gaps and a mask that needs no gradient, and leave LibTorch's fused backends enabled, or set "
      "policies.attention.enabled = \"default\", which runs and lists it");
}

TEST_CASE("what autocast brings to one dtype is judged by that dtype") {
  // As where q and k are normalised, in fp32, and v is not.
  Net net(with(Enabled::on));
  const at::Tensor v = net.v.detach().to(at::kBFloat16);
  const at::NoGradGuard no_grad;
  CHECK_THROWS_AS(net.seam.attention(net.q, net.k, v, {}), PolicyError);
  const AutocastGuard bf16(at::kCPU, true, at::kBFloat16);
  at::Tensor out;
  REQUIRE_NOTHROW(out = net.seam.attention(net.q, net.k, v, {}));
  CHECK(at::equal(out, at::scaled_dot_product_attention(net.q.detach(), net.k.detach(), v)));
}

TEST_CASE("by default attention without a kernel runs and is listed with its bytes") {
  PolicyOptions options;
  options.ema.enabled = Enabled::off;
  Net net(with(Enabled::off));  // for its tensors
  Seam seam;
  PolicySet set(options, {at::kCPU, {}, {"attn"}}, seam);
  const auto run = [&](double dropout) {
    const auto scope = set.forward_scope();
    seam.run("attn",
             [&](Tensors&& in) { return Tensors{seam.attention(in[0], in[1], in[2], {.dropout = dropout})}; },
             {net.q, net.k, net.v});
  };
  CHECK(set.reports()[1].active);
  CHECK(set.reports()[1].reason == "fused kernels; calls that have none are listed once they ran");
  const std::string stored =
      "; not in attn: 393216 bytes of weights are stored, no fused kernel (q [2, 4, 64, 8] Float on cpu, "
      "dropout 0.1)";
  const bool some_fused = GENERATE(true, false);
  if (some_fused) run(0.0);
  if (some_fused) CHECK(set.reports()[1].reason == "fused kernels, no weights are stored");
  run(0.1);
  run(0.1);
  CHECK(set.reports()[1].active == some_fused);
  CHECK(set.reports()[1].reason ==
        (some_fused ? "fused kernels in 1 of 3 calls" : "fused kernels in 0 of 2 calls") + stored);
}

TEST_CASE("the bytes that materialised attention is said to store are those that stay for backward") {
  CountingAllocatorGuard counting;
  const double dropout = GENERATE(0.0, 0.1);
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  CAPTURE(dropout, type);
  const AttentionBackendGuard materialised({.flash = false, .memory_efficient = false});
  Net net(with(Enabled::by_default));
  const at::Tensor q = net.q.detach().to(type).requires_grad_(true);
  cpu_accounts().start_event_log();
  const at::Tensor out = net.seam.attention(q, q, q, {.dropout = dropout});
  int64_t bytes = 0;
  std::map<uint64_t, int64_t> alive;
  for (const MemoryEvent& event : cpu_accounts().stop_event_log()) {
    if (event.kind == MemoryEvent::Kind::birth) alive[event.serial] = event.bytes;
    if (event.kind == MemoryEvent::Kind::death) alive.erase(event.serial);
  }
  for (const auto& [serial, size] : alive) bytes += size >= 2 * 4 * 64 * 64 * 2 ? size : 0;
  CHECK_THAT(net.policy.report().reason, Catch::Contains(": " + std::to_string(bytes) + " bytes of weights"));
  CHECK(bytes == 2 * 4 * 64 * 64 * (type == at::kDouble ? 8 : 4) * (dropout > 0 ? 3 : 1));
}

TEST_CASE("a policy whose attention is never called says so, and is refused where it was asked for") {
  Net net(with(GENERATE(Enabled::by_default, Enabled::on)));
  net.direct = [](const at::Tensor& q, const at::Tensor&, const at::Tensor&) { return q.sin(); };
  CHECK(net.policy.report().active);
  net.forward(0.0);
  CHECK_FALSE(net.policy.report().active);
  CHECK(net.policy.report().reason == "no forward pass has called the seam's attention");
  Net asked(with(Enabled::on));
  asked.direct = net.direct;
  asked.forward(0.0);
  CHECK_THROWS_WITH(
      asked.policy.before_step(),
      "policies.attention.enabled = true, but the forward pass did not call the seam's attention, so it has "
      "no "
      "effect; call it where the model attends, or set policies.attention.enabled = \"default\"");
  asked.direct = nullptr;
  asked.forward(0.0);
  CHECK_NOTHROW(asked.policy.before_step());
}

TEST_CASE("the scopes of two policies on one thread nest") {
  Net outer(with(Enabled::by_default)), inner(with(Enabled::by_default));
  const auto by_hand = [](const Net& net) { at::softmax(at::matmul(net.q, net.k.transpose(-2, -1)), -1); };
  {
    const auto scope = outer.policy.forward_scope();
    {
      const auto nested = inner.policy.forward_scope();
      by_hand(inner);
    }
    CHECK_THAT(inner.policy.report().reason, Catch::Contains("past the seam"));
    CHECK_THAT(outer.policy.report().reason, !Catch::Contains("past the seam"));
    by_hand(outer);
  }
  CHECK_THAT(outer.policy.report().reason, Catch::Contains("past the seam"));
  CHECK_FALSE(at::hasThreadLocalCallbacks());
}

TEST_CASE("attention past the seam is found: LibTorch's fallback and attention by hand") {
  const auto fallback = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::scaled_dot_product_attention(q, k, v, std::nullopt, 0.1);
  };
  const auto by_hand = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::matmul(at::softmax(at::matmul(q, k.transpose(-2, -1)), -1), v);  // as MultiheadAttention does
  };
  const auto with_bias = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const at::Tensor product = at::baddbmm(at::zeros({64}), q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2));
    return at::bmm(at::softmax(product, -1), v.flatten(0, 1));
  };
  const auto error = [](auto direct, Enabled enabled) {
    Net net(with(enabled));
    net.direct = direct;
    return error_of(net);
  };
  CHECK(error(fallback, Enabled::on) ==
        "policies.attention.enabled = true, but attn stores attention weights of its own: "
        "scaled_dot_product_attention of q [2, 4, 64, 8] without a fused kernel; call the seam's attention "
        "there (at::scaled_dot_product_attention, never torch::nn::MultiheadAttention), or set "
        "policies.attention.enabled = \"default\"");
  CHECK(error(by_hand, Enabled::on) ==
        "policies.attention.enabled = true, but attn stores attention weights of its own: softmax of [2, 4, "
        "64, 64] after a batched product; call the seam's attention there (at::scaled_dot_product_attention, "
        "never torch::nn::MultiheadAttention), or set policies.attention.enabled = \"default\"");
  CHECK_THAT(error(with_bias, Enabled::on),
             Catch::Contains("softmax of [8, 64, 64] after a batched product"));
  CHECK(error(fallback, Enabled::by_default) == "accepted");

  Net net(with(Enabled::by_default));
  net.direct = by_hand;
  net.forward(0.0);
  CHECK(net.policy.report().reason ==
        "no forward pass has called the seam's attention; not in the model: at least 131072 bytes of weights "
        "are stored past the seam (softmax of [2, 4, 64, 64] after a batched product)");
  // Outside of every module it is found before the weights change.
  Net outside(with(Enabled::on));
  {
    const auto scope = outside.policy.forward_scope();
    by_hand(outside.q, outside.k, outside.v);
  }
  CHECK_THROWS_AS(outside.policy.before_step(), PolicyError);
}

TEST_CASE("a softmax that is no attention is left alone") {
  Net net(with(Enabled::on));
  net.direct = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::softmax(q, -1) + k + v;
  };
  CHECK(error_of(net) == "accepted");
}

TEST_CASE(
    "another kernel than the default is refused in training on the CPU, and beside a policy that is off no "
    "error") {
  const auto error = [](Enabled enabled, bool training) {
    PolicyOptions options = PolicyOptions::all_off();
    options.attention = {.enabled = enabled, .kernel = AttentionKernel::cudnn};
    Seam seam;
    try {
      const PolicySet set(options, {at::kCPU, {}, {}, training}, seam);
    } catch (const PolicyError& refused) {
      return std::string(refused.what());
    }
    return std::string();
  };
  CHECK(error(Enabled::by_default, true) ==
        "policies.attention.kernel = \"cudnn\" has no effect on the CPU; set policies.attention.kernel = "
        "\"flash\"");
  CHECK(error(Enabled::by_default, false).empty());  // samples of a model that was trained on a GPU
  CHECK(error(Enabled::off, true).empty());
}

TEST_CASE("a policy is put into a model once") {
  Seam seam;
  AttentionPolicy first({}), second({});
  first.apply(seam);
  CHECK_THROWS_WITH(second.apply(seam),
                    "policies.attention is in this model already; apply each policy once");
}
