// What a layer of LLaVA's decoder keeps for backward, a token: ours to the byte, at or below what was
// measured of transformers' (4.57.1, with peft 0.17.1). With h hidden, f of the MLP, H heads, r of adapters.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/llava.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/policy_set.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "llava/parts.h"
#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/llava/saved_bytes.h"
#include "support/same_bits.h"

using namespace dtk::models;
using namespace dtk::test;
namespace policies = dtk::policies;

namespace {

using Bytes = std::map<std::string, int64_t>;

constexpr int64_t h = 64, f = 176, H = 4, r = 8;

struct Regime {
  const char* name;
  bool text, autocast;
  LlavaBase base;
  int64_t rank;
  double dropout;
  int64_t composed, fused, theirs;  // bytes a token and layer, each + 4·H + 8
};

LlavaOptions options_of(const Regime& regime) {
  LlavaOptions options;
  options.vision = {32, 64, 2, 2, 28, 14};
  options.text = {h, f, 3, H, 96};
  options.base = regime.base;
  options.lora.r = regime.rank;
  options.lora.dropout = regime.dropout;
  options.trained = {.vision = false, .projector = true, .text = regime.text, .lora = regime.rank > 0};
  return options;
}

LlavaBatch batch_of(int64_t tokens, c10::Device device) {
  const auto rows = at::TensorOptions().dtype(at::kLong).device(device);
  LlavaBatch batch;
  batch.ids = at::zeros({1, tokens}, rows);
  batch.pictures = at::zeros({1, 3, 28, 28}, device);
  batch.feature_rows = at::arange(4, rows);
  batch.picture_rows = at::arange(1, 5, rows);
  batch.label_rows = at::arange(8, 12, rows);
  batch.labels = at::zeros({4}, rows);
  return batch;
}

Bytes kept(const Regime& regime, int64_t tokens, bool fuses = false) {
  const c10::Device device = test_device();
  Llava model(options_of(regime), device);
  for (const auto& [name, parameter] : model.parameters()) {
    if (!parameter.requires_grad()) policies::mark_frozen(parameter);
  }
  for (const auto& [name, weight] : model.packed()) {
    for (const auto& [suffix, tensor] : weight.tensors()) policies::mark_frozen(tensor);
  }
  model.seam.run = policies::run_with_module_path();
  model.seam.fuses = [fuses](std::string_view) { return fuses; };
  const policies::AutocastGuard autocast(device.type(), regime.autocast, at::kBFloat16);
  const auto noted = std::make_shared<SavedBytes>();
  const policies::SavedTensorScope scope(noted);
  const at::Tensor loss = model.loss(batch_of(tokens, device));
  return noted->bytes;
}

}  // namespace

TEST_CASE("a layer of LLaVA's decoder keeps what its law says, at most what the original keeps", "[device]") {
  const policies::SavedTensorEngineGuard engine;
  const Regime regime = GENERATE(values<Regime>({
      {"trained, fp32", true, false, LlavaBase::fp32, 0, 0, 40 * h + 16 * f, 32 * h + 12 * f,
       40 * h + 16 * f},
      {"trained, fp32 under bf16 autocast", true, true, LlavaBase::fp32, 0, 0, 34 * h + 8 * f, 20 * h + 6 * f,
       34 * h + 8 * f},
      {"frozen, bf16", false, false, LlavaBase::bf16, 0, 0, 16 * h + 6 * f, 12 * h + 4 * f, 16 * h + 6 * f},
      {"frozen, bf16 under autocast", false, true, LlavaBase::bf16, 0, 0, 16 * h + 6 * f, 12 * h + 4 * f,
       16 * h + 6 * f},
      {"frozen, fp32", false, false, LlavaBase::fp32, 0, 0, 24 * h + 12 * f, 24 * h + 8 * f, 24 * h + 12 * f},
      {"frozen, fp32 under bf16 autocast", false, true, LlavaBase::fp32, 0, 0, 16 * h + 6 * f, 16 * h + 4 * f,
       16 * h + 6 * f},
      {"adapters on bf16", false, true, LlavaBase::bf16, r, 0, 20 * h + 8 * f + 14 * r,
       16 * h + 6 * f + 14 * r, 20 * h + 8 * f + 14 * r},
      {"adapters on bf16 with dropout", false, true, LlavaBase::bf16, r, 0.05, 20 * h + 8 * f + 14 * r,
       16 * h + 6 * f + 14 * r, 34 * h + 9 * f + 14 * r},
      {"frozen, nf4", false, true, LlavaBase::nf4, 0, 0, 16 * h + 6 * f, 12 * h + 4 * f, 16 * h + 6 * f},
      {"frozen, int8", false, false, LlavaBase::int8, 0, 0, 16 * h + 6 * f, 12 * h + 4 * f, 16 * h + 6 * f},
      {"adapters on nf4 with dropout", false, true, LlavaBase::nf4, r, 0.05, 20 * h + 8 * f + 14 * r,
       16 * h + 6 * f + 14 * r, 34 * h + 9 * f + 14 * r},
  }));
  CAPTURE(regime.name);
  for (const bool fuses : {false, true}) {
    CAPTURE(fuses);
    const Bytes many = kept(regime, 96, fuses), few = kept(regime, 64, fuses);
    for (const char* const layer : {"model.layers.1", "model.layers.2"}) {
      CHECK((many.at(layer) - few.at(layer)) / 32 == (fuses ? regime.fused : regime.composed) + 4 * H + 8);
    }
    for (const auto& [path, bytes] : many) {
      CAPTURE(path);
      CHECK_FALSE(path.starts_with("model.vision_tower"));
    }
  }
  CHECK(regime.composed <= regime.theirs);
}

TEST_CASE("of frozen weights nothing is kept but themselves, however they are stored", "[device]") {
  const policies::SavedTensorEngineGuard engine;
  const auto saved = [](LlavaBase base) {
    return kept({"", false, true, base, 0, 0, 0, 0, 0}, 64).at("model.layers.1");
  };
  const int64_t of_tokens = 64 * (16 * h + 6 * f + 4 * H + 8);
  const int64_t bf16 = saved(LlavaBase::bf16);
  CHECK(bf16 >= of_tokens);
  CHECK(bf16 - of_tokens < 2 * h * h);  // no matrix, which at::linear keeps a copy of where it is fp32
  for (const LlavaBase base : {LlavaBase::fp32, LlavaBase::int8, LlavaBase::nf4}) CHECK(saved(base) == bf16);
}

TEST_CASE("a frozen weight in fp32 gives autocast's product and gradient with their bits") {
  const at::Tensor x = at::randn({3, 5, 16}), weight = at::randn({24, 16});
  const auto run = [&](const auto& product) {
    at::Tensor in = x.clone().requires_grad_();
    const policies::AutocastGuard autocast(at::kCPU, true, at::kBFloat16);
    const at::Tensor out = product(in);
    torch::autograd::backward({out.pow(2).sum()}, {});
    return std::pair(out.detach(), in.grad());
  };
  const auto plain = run([&](const at::Tensor&in) { return at::linear(in, weight); }),
             ours = run([&](const at::Tensor&in) { return frozen_linear(in, weight); });
  CHECK(plain.first.scalar_type() == at::kBFloat16);
  CHECK(same_bits(ours.first, plain.first));
  CHECK(same_bits(ours.second, plain.second));
}

TEST_CASE("answers keep 4h bytes a token and layer of keys and values in bf16, and none for backward") {
  Llava model(options_of({"", false, true, LlavaBase::bf16, 0, 0, 0, 0, 0}), at::kCPU);
  std::vector<int64_t> bytes;  // of each layer's keys, then its values, of each token
  model.seam.attention = [&](at::Tensor q, at::Tensor k, at::Tensor v, const AttentionCall& call) {
    if (q.size(1) == H && q.size(2) < k.size(2)) {  // not the tower's, and behind a prompt
      for (const at::Tensor& one : {k, v}) bytes.push_back(static_cast<int64_t>(one.storage().nbytes()));
    }
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, call.causal);
  };
  constexpr int64_t kPrompt = 20, kCount = 6, kLayers = 3;
  LlavaBatch prompts = batch_of(kPrompt, at::kCPU);
  {
    const at::NoGradGuard no_grad;
    REQUIRE(model.continued(prompts, kCount, {}));
  }
  CHECK(bytes.size() == (kCount - 1) * kLayers * 2);
  for (const int64_t one : bytes) CHECK(one == (kPrompt + kCount) * 2 * h);
  // Whoever recomputes a layer takes gradients in it.
  model.seam.run = [](std::string_view, const ModuleFn& fn, Tensors&& inputs) {
    const at::AutoGradMode with_graph(true);
    return fn(std::move(inputs));
  };
  CHECK_THROWS_WITH(model.continued(batch_of(kPrompt, at::kCPU), kCount, {}),
                    Catch::Contains("a cache of keys and values is for answers, where no gradient is taken"));
}

TEST_CASE("of the head nothing of rows x vocabulary is kept, and rows without a label keep nothing") {
  const policies::SavedTensorEngineGuard engine;
  const Regime regime{"", false, false, LlavaBase::fp32, 0, 0, 0, 0, 0};
  const Bytes many = kept(regime, 96), few = kept(regime, 64);
  // The hidden gradient (L, h) and, beside it, what the norm needs of L rows.
  CHECK(many.at("lm_head") == 4 * h * 4);
  CHECK(many.at("lm_head") == few.at("lm_head"));
  CHECK(many.at("model.norm") == few.at("model.norm"));
}

TEST_CASE("the mask of an adapter's dropout is drawn again for backward, with the bits of one that is kept") {
  const policies::SavedTensorEngineGuard engine;
  const at::Generator drawn = policies::make_generator(at::kCPU, 1);
  const at::Tensor x = at::randn({2, 5, 32}, drawn, at::kFloat).requires_grad_(true);
  const at::Tensor weight = at::randn({8, 32}, drawn, at::kFloat).requires_grad_(true);
  const std::string begin = policies::generator_state(policies::make_generator(at::kCPU, 3));
  const auto noted = std::make_shared<SavedBytes>();
  const auto of = [&](bool keeps_mask) {
    std::string state = begin;
    const policies::DefaultGeneratorScope random(at::kCPU, state);
    at::Tensor y;
    {
      const policies::SavedTensorScope scope(noted);
      noted->bytes.clear();
      if (keeps_mask) {
        const at::Tensor mask = at::empty_like(x).bernoulli_(0.7).div_(0.7);
        y = at::linear(x * mask, weight);
      } else {
        y = dropped_linear(x, weight, 0.3);
      }
    }
    torch::autograd::backward({y.pow(2).sum()}, {});
    Tensors all = pack(y.detach(), x.grad().clone(), weight.grad().clone());
    x.mutable_grad().reset();
    weight.mutable_grad().reset();
    return all;
  };
  const Tensors kept_mask = of(true);
  CHECK(noted->bytes[""] == 2 * 2 * 5 * 32 * 4);  // the mask, and what it leaves of x
  const Tensors drawn_again = of(false);
  CHECK(noted->bytes[""] == 0);  // x is a leaf here
  for (size_t i = 0; i < kept_mask.size(); ++i) CHECK(same_bits(kept_mask[i], drawn_again[i]));
}

TEST_CASE("gradients of adapters with dropout are bit-equal under recomputation") {
  const Regime regime{"", false, false, LlavaBase::fp32, r, 0.3, 0, 0, 0};
  const auto gradients = [&](bool recomputes) {
    Llava model(options_of(regime), at::kCPU, policies::make_generator(at::kCPU, 1));
    const at::Generator some = policies::make_generator(at::kCPU, 2);
    for (const auto& [name, parameter] : model.parameters()) {
      const at::NoGradGuard no_grad;
      if (name.ends_with("lora_B.weight")) at::Tensor(parameter).normal_(0, 0.1, some);
    }
    policies::PolicyOptions options = policies::PolicyOptions::all_off();
    if (recomputes) {
      options.checkpoint.enabled = policies::Enabled::on;
      options.checkpoint.targets = {llava_checkpoint_target};
    }
    policies::Seam seam;
    seam.attention = model.seam.attention;
    policies::PolicySet set(options, {at::kCPU, model.parameters(), model.paths()}, seam);
    model.seam.run = seam.run;
    model.seam.keep = seam.keep;
    std::string state = policies::generator_state(policies::make_generator(at::kCPU, 3));
    const policies::DefaultGeneratorScope random(at::kCPU, state);
    at::Tensor loss;
    {
      const auto scope = set.forward_scope();
      loss = model.loss(batch_of(32, at::kCPU));
    }
    torch::autograd::backward({loss}, {});
    set.before_step();
    Tensors all{loss.detach()};
    int64_t adapters = 0;
    for (const auto& [name, parameter] : model.parameters()) {
      CHECK(parameter.grad().defined() == parameter.requires_grad());
      if (parameter.grad().defined()) all.push_back(parameter.grad());
      adapters += name.find("lora_") != std::string::npos ? 1 : 0;
    }
    CHECK(adapters == 2 * 7 * 3);
    return all;
  };
  const Tensors plain = gradients(false), again = gradients(true);
  REQUIRE(plain.size() == again.size());
  for (size_t i = 0; i < plain.size(); ++i) CHECK(same_bits(plain[i], again[i]));
}
