// Results that a segment keeps: bytes, which operators are recomputed, gradients and random numbers as in the
// plain run, and what is refused.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/dit.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/checkpoint_policy.h>
#include <dtk/policies/module_path.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/policies/segment_tests.h"
#include "support/policies/small_dit.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using dtk::test::error_text;
using dtk::test::Fixture;
using dtk::test::leaf;
using dtk::test::same_bits;
using dtk::test::test_device;
using Choice = std::shared_ptr<KeptResults>;

namespace {

constexpr int64_t kRows = 8, kWidth = 16, kInner = 32;
constexpr int64_t kWide = kRows * kInner * 4, kNarrow = kRows * kWidth * 4;

Choice keep(const std::vector<std::string>& entries) {
  return std::make_shared<KeptResults>(entries);
}

// Linear, GELU, dropout, linear, and products that save what comes last.
struct Net {
  at::Tensor x = leaf({kRows, kWidth}), w1 = leaf({kInner, kWidth}), w2 = leaf({kWidth, kInner}),
             gate = leaf({kWidth}), bias = leaf({kWidth});

  ModuleFn segment() const {
    return [net = *this](Tensors&& in) {
      at::Tensor h = named("wide", at::linear(in[0], net.w1));
      h = at::gelu(h, "tanh");
      h = named("dropped", at::dropout(h, 0.5, true));
      h = named("narrow", at::addmm(net.bias, h, net.w2.t()));
      h = h * net.gate.sigmoid();
      h = at::dropout(h, 0.5, true);
      return Tensors{in[0] + h.sin()};
    };
  }
  Tensors leaves() const { return {x, w1, w2, gate, bias}; }
};

struct KeptOutcome {
  Tensors gradients;
  at::Tensor random;
  int64_t saved = 0;
};

KeptOutcome train(const Net& net, const std::function<Tensors(const ModuleFn&, Tensors&&)>& run) {
  for (const at::Tensor& one : net.leaves()) one.mutable_grad().reset();
  at::manual_seed(3);
  KeptOutcome outcome;
  const SavedTensorScope ledger(saved_tensor_ledger());
  const Tensors out = run(net.segment(), {net.x * 1});
  outcome.saved = cpu_accounts().live().of(Category::saved);
  torch::autograd::backward({out[0].sum()}, {});
  for (const at::Tensor& one : net.leaves()) outcome.gradients.push_back(one.grad());
  outcome.random = at::rand({4}, test_device());
  return outcome;
}

KeptOutcome train(const Net& net, const Choice& kept) {
  return train(net,
               [&](const ModuleFn& fn, Tensors&& in) { return checkpoint("net", fn, std::move(in), kept); });
}

void check_equal(const KeptOutcome& a, const KeptOutcome& b) {
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    INFO("gradient " << i);
    CHECK_VALUES(same_bits(a.gradients[i], b.gradients[i]));
  }
  CHECK_VALUES(same_bits(a.random, b.random));
}

}  // namespace

TEST_CASE("a segment keeps its input and the named results, to the byte; gradients are those of a plain run",
          "[device]") {
  Fixture fixture;
  const Net net;
  const KeptOutcome plain = train(net, [](const ModuleFn& fn, Tensors&& in) { return fn(std::move(in)); });
  using Case = std::pair<std::vector<std::string>, int64_t>;
  const Case named_ones = GENERATE(Case{{}, 0}, Case{{"wide"}, kWide}, Case{{"dropped"}, kWide},
                                   Case{{"narrow"}, kNarrow}, Case{{"wide", "narrow"}, kWide + kNarrow},
                                   Case{{"wide", "dropped", "narrow"}, 2 * kWide + kNarrow});
  CAPTURE(named_ones.first);
  const Choice kept = named_ones.first.empty() ? nullptr : keep(named_ones.first);
  const KeptOutcome outcome = train(net, kept);
  check_equal(plain, outcome);
  if (dtk::test::on_cpu()) CHECK(outcome.saved == kNarrow + named_ones.second);
  check_equal(plain, train(net, kept));  // and again
}

TEST_CASE("the kernel that made a kept result is not recomputed") {
  Fixture fixture;
  // Allocations tell: what is recomputed allocates its result, of a size that nothing else here has.
  const at::Tensor x = leaf({6, 16}), w = leaf({16, 48}), v = leaf({48});
  const bool viewed = GENERATE(false, true);  // by an operator that its schema does not call a view
  CAPTURE(viewed);
  const ModuleFn fn = [&](Tensors&& in) {
    at::Tensor h = at::mm(in[0], w);
    if (viewed) h = at::_unsafe_view(h, {2, 3, 48});
    h = named("product", std::move(h));
    return Tensors{(h * v).sin()};
  };
  const auto born = [&](const Choice& kept) {
    const Tensors out = checkpoint("net", fn, {x * 1}, kept);
    const at::Tensor sum = out[0].sum();
    cpu_accounts().start_event_log();
    torch::autograd::backward({sum}, {});
    const std::vector<MemoryEvent> events = cpu_accounts().stop_event_log();
    return std::count_if(events.begin(), events.end(), [](const MemoryEvent& event) {
      return event.kind == MemoryEvent::Kind::birth && event.bytes == 6 * 48 * 4;
    });
  };
  born(nullptr);
  CHECK(born(nullptr) - born(keep({"product"})) == 1);
}

TEST_CASE("results of a chosen operator are kept, with all its overloads and uses", "[device]") {
  Fixture fixture;
  const Net net;
  const KeptOutcome plain = train(net, [](const ModuleFn& fn, Tensors&& in) { return fn(std::move(in)); });
  const KeptOutcome mm = train(net, keep({"aten::mm"})), addmm = train(net, keep({"aten::addmm"})),
                    both = train(net, keep({"aten::mm", "aten::addmm", "aten::gelu", "wide", "narrow"}));
  if (dtk::test::on_cpu()) {
    CHECK(mm.saved == kNarrow + kWide);
    CHECK(addmm.saved == 2 * kNarrow);
    CHECK(both.saved == kNarrow + 2 * kWide + kNarrow);
  }
  for (const KeptOutcome* one : {&mm, &addmm, &both}) check_equal(plain, *one);
}

TEST_CASE("a kept operator that draws random numbers leaves the rest of them as they were", "[device]") {
  Fixture fixture;
  const at::Tensor w = leaf({64});
  const auto run = [&](bool checkpointed, const Choice& kept) {
    w.mutable_grad().reset();
    at::manual_seed(11);
    const ModuleFn fn = [&](Tensors&& in) {
      const auto [first, mask] = at::native_dropout(in[0] * w, 0.3, true);
      return Tensors{(at::dropout(first * w, 0.4, true) * w).sin()};
    };
    Tensors in{at::ones({64}, test_device())};
    const Tensors out = checkpointed ? checkpoint("net", fn, std::move(in), kept) : fn(std::move(in));
    torch::autograd::backward({out[0].sum()}, {});
    return std::pair{w.grad(), at::rand({3}, test_device())};
  };
  const auto plain = run(false, nullptr), all = run(true, keep({"aten::native_dropout"}));
  CHECK_VALUES(same_bits(plain.first, all.first));
  CHECK_VALUES(same_bits(plain.second, all.second));
}

TEST_CASE("fused attention that is named or chosen keeps its log-sum-exp beside it and is not recomputed") {
  Fixture fixture;
  constexpr int64_t N = 2, H = 2, T = 16, d = 8;
  const at::Tensor w = leaf({N, H, T, d});
  const auto run = [&](bool checkpointed, const Choice& kept) {
    w.mutable_grad().reset();
    const ModuleFn fn = [&](Tensors&& in) {
      const at::Tensor q = in[0] * w;
      at::Tensor o = named("attn_out", at::scaled_dot_product_attention(q, q, in[0]));
      return Tensors{o.transpose(1, 2).sin()};
    };
    const SavedTensorScope ledger(saved_tensor_ledger());
    at::manual_seed(1);
    Tensors in{at::randn({N, H, T, d})};
    const Tensors out = checkpointed ? checkpoint("net", fn, std::move(in), kept) : fn(std::move(in));
    const int64_t saved = cpu_accounts().live().of(Category::saved);
    const at::Tensor sum = out[0].sum();
    torch::autograd::backward({sum}, {});
    return std::pair{w.grad(), saved};
  };
  const auto plain = run(false, nullptr), named_one = run(true, keep({"attn_out"})),
             chosen = run(true, keep({"aten::_scaled_dot_product_flash_attention_for_cpu"}));
  const int64_t x = N * H * T * d * 4;
  CHECK(named_one.second == 2 * x + N * H * T * 4);
  CHECK(chosen.second == 2 * x + N * H * T * 4);
  CHECK(same_bits(plain.first, named_one.first));
  CHECK(same_bits(plain.first, chosen.first));
}

TEST_CASE("kept results under autocast, nested segments, grad and a second backward") {
  Fixture fixture;
  const Net net;
  const Choice kept = keep({"wide", "aten::addmm"});
  for (const bool bf16 : {false, true}) {
    const AutocastGuard autocast(at::kCPU, bf16, at::kBFloat16);
    const KeptOutcome plain = train(net, [](const ModuleFn& fn, Tensors&& in) { return fn(std::move(in)); });
    const auto twice = [&](const ModuleFn& fn, Tensors&& in) {
      const ModuleFn inner = [&, fn](Tensors&& deep) {
        return checkpoint("net.inner", fn, std::move(deep), kept);
      };
      return checkpoint("net", inner, std::move(in), keep({"narrow"}));
    };
    check_equal(plain, train(net, twice));
    check_equal(plain, train(net, kept));
  }
  at::manual_seed(3);
  const Tensors out = checkpoint("net", net.segment(), {net.x * 1}, kept);
  const auto first = torch::autograd::grad({out[0].sum()}, {net.w1}, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({out[0].sum()}, {net.w1});
  CHECK(same_bits(first[0], second[0]));
}

TEST_CASE("nothing of kept results stays after the graph is gone, and named() does nothing outside") {
  Fixture fixture;
  const Net net;
  const at::Tensor same = named("wide", net.x);
  CHECK(same.unsafeGetTensorImpl() == net.x.unsafeGetTensorImpl());
  train(net, keep({"wide"}));
  for (const at::Tensor& one : net.leaves()) one.mutable_grad().reset();
  const int64_t before = cpu_accounts().live_bytes();
  for (int i = 0; i < 100; ++i) {
    const Tensors out = checkpoint("net", net.segment(), {net.x * 1}, keep({"wide", "aten::addmm"}));
    if (i % 2 == 0) (void)torch::autograd::grad({out[0].sum()}, {net.w1});
  }
  CHECK(cpu_accounts().live_bytes() == before);
}

TEST_CASE("names that cannot be kept are refused with what to change") {
  Fixture fixture;
  const at::Tensor w = leaf({4});
  const auto error = [&](const ModuleFn& fn) {
    return error_text<c10::Error>([&] { checkpoint("blocks.1", fn, {at::ones({4}) * w}, keep({"h"})); });
  };
  CHECK_THAT(error([](Tensors&& in) { return Tensors{named("h", in[0]).sin()}; }),
             Catch::StartsWith("checkpoint blocks.1: the result \"h\" [4] is not made by an operator of this "
                               "segment (but an input, a parameter or a cast), so there is nothing to keep; "
                               "name what the segment computes, or leave the name out of what is kept"));
  CHECK_THAT(error([](Tensors&& in) { return Tensors{named("h", in[0].sin().relu_()).sin()}; }),
             Catch::StartsWith("checkpoint blocks.1: the result \"h\" [4] was changed in place after "
                               "aten::sin made it, so the recomputation could not take it; make that change "
                               "out of place (relu, not relu_) or name the result before it"));
  CHECK_THAT(error([](Tensors&& in) {
               const auto norm = at::native_layer_norm(in[0], {4}, {}, {}, 1e-5);
               const at::Tensor other = in[0].sin();
               return Tensors{named("h", std::get<0>(norm)) * other};
             }),
             Catch::StartsWith("checkpoint blocks.1: the result \"h\" [4] is one of several that "
                               "aten::native_layer_norm returned, and others ran since; name it at once, or "
                               "keep \"aten::native_layer_norm\" instead"));
  // A change after it was named is seen in backward.
  const Tensors out = checkpoint(
      "blocks.1",
      [&](Tensors&& in) {
        at::Tensor h = named("h", in[0] * w);
        const at::Tensor y = (h * w).sin();
        h.add_(1);
        return Tensors{y};
      },
      {at::ones({4}) * w}, keep({"h"}));
  CHECK_THROWS_WITH(torch::autograd::backward({out[0].sum()}, {}), Catch::Contains("was changed in place"));
}

TEST_CASE("another operator at a kept one's place in the recomputation is refused") {
  Fixture fixture;
  const at::Tensor w = leaf({4});
  auto runs = std::make_shared<int>(0);
  const Tensors out = checkpoint(
      "net",
      [&, runs](Tensors&& in) {
        at::Tensor h = (*runs)++ == 0 ? in[0].sin() : in[0].cos();
        return Tensors{named("h", h) * w};
      },
      {at::ones({4}) * w}, keep({"h"}));
  CHECK_THROWS_WITH(torch::autograd::backward({out[0].sum()}, {}),
                    Catch::Contains("checkpoint net: the recomputation runs aten::cos where forward ran "
                                    "aten::sin, whose result is kept; a segment must recompute the same"));
}

TEST_CASE("entries that occur nowhere are refused with near ones") {
  SavedTensorEngineGuard engine;
  const auto made = [](std::vector<std::string> entries) {
    return error_text<PolicyError>([&] { KeptResults kept(entries); });
  };
  CHECK_THAT(made({"aten::adddmm"}),
             Catch::StartsWith("policies.checkpoint.keep: \"aten::adddmm\" is no operator of LibTorch; near: "
                               "aten::addbmm, aten::addmm, "));
  CHECK(made({"aten::linear"}) ==
        "policies.checkpoint.keep: \"aten::linear\" is made of other operators; name those of them that are "
        "to be kept, such as aten::addmm of aten::linear, or mark its result in the model by a name");
  CHECK(made({"aten::view"}) ==
        "policies.checkpoint.keep: \"aten::view\" returns no new tensor that autograd knows, or a cast, so "
        "there is nothing to keep");
  const auto stepped = [](const char* entry) {
    CheckpointOptions options;
    options.targets = {"blocks.*"};
    options.keep = std::vector<std::string>{entry};
    dtk::models::Dit dit = dtk::test::small_dit(2, 32, 2, 0.0, at::kCPU);
    CheckpointPolicy policy(options, dit.paths());
    Seam seam;
    policy.apply(seam);
    dit.seam.run = seam.run;
    dit.seam.keep = seam.keep;
    dit.forward(at::randn({2, 1, 8, 8}), at::rand({2}), at::arange(2), /*training=*/true);
    return error_text<PolicyError>([&] { policy.before_step(); });
  };
  CHECK(stepped("fc3_out") ==
        "policies.checkpoint.keep: \"fc3_out\" is no name of a result in the segments' forward passes; near: "
        "fc1_out, fc2_out, qkv_out");
  CHECK_THAT(stepped("addmm"), Catch::EndsWith("the segments' forward passes; near: aten::addmm"));
  CHECK_THAT(stepped("Offload"), Catch::EndsWith("the segments' forward passes; near: offload"));
  CHECK(made({"aten::addmm.default"}) ==
        "policies.checkpoint.keep: \"aten::addmm.default\" is no operator of LibTorch; near: aten::addmm, "
        "which means all of its overloads");
  CHECK_THAT(stepped("aten::bmm"),
             Catch::StartsWith("policies.checkpoint.keep: \"aten::bmm\" is an operator that does not run in "
                               "the segments' forward passes; near: aten::"));
}

TEST_CASE("a DiT whose blocks keep named results: bytes by the rule, gradients bit-equal", "[device]") {
  Fixture fixture;
  constexpr int64_t N = 4, T = 16, D = 32;
  dtk::models::Dit dit = dtk::test::small_dit(3, D, 2, 0.1, test_device());
  const auto gradients = [&](std::vector<std::string> kept, bool on) {
    CheckpointOptions options;
    options.targets = {"blocks.*"};
    if (!kept.empty()) options.keep = std::move(kept);
    CheckpointPolicy policy(options, dit.paths());
    Seam seam;
    seam.run = run_with_module_path();
    if (on) policy.apply(seam);
    dit.seam.run = seam.run;
    dit.seam.keep = seam.keep;
    for (const auto& [name, parameter] : dit.parameters()) parameter.mutable_grad().reset();
    at::manual_seed(5);
    const SavedTensorScope ledger(saved_tensor_ledger());
    const at::Tensor x = at::randn({N, 1, 8, 8}).to(test_device()), t = at::rand({N}).to(test_device()),
                     y = at::arange(N).to(test_device());
    const int64_t before = dtk::test::DeviceMemory::live();
    const at::Tensor loss = dit.forward(x, t, y, true).pow(2).sum();
    const int64_t grown = dtk::test::DeviceMemory::live() - before;
    torch::autograd::backward({loss}, {});
    if (on) policy.before_step();
    if (options.keep == std::vector<std::string>{"fc2_out", "proj_out"}) {
      CHECK(policy.report().reason ==
            "recomputes 3 modules in 3 segments, from blocks.0 to blocks.2, keeping fc2_out, proj_out");
    }
    Tensors all;
    for (const auto& [name, parameter] : dit.parameters()) {
      if (parameter.requires_grad()) all.push_back(parameter.grad());
    }
    return std::pair{all, grown};
  };
  gradients({}, false);
  const auto plain = gradients({}, false), block = gradients({}, true);
  const auto fc2 = gradients({"fc2_out"}, true), two = gradients({"fc2_out", "proj_out"}, true);
  CHECK(fc2.second - block.second == 3 * N * T * D * 4);
  CHECK(two.second - block.second == 2 * 3 * N * T * D * 4);
  for (const auto* one : {&block, &fc2, &two}) {
    for (size_t i = 0; i < plain.first.size(); ++i) CHECK_VALUES(same_bits(plain.first[i], one->first[i]));
  }
}
