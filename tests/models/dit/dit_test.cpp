// The DiT against the published model: sizes, names, initial values, outputs, loss, gradients, guidance.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/dit.h>
#include <dtk/policies/enum_text.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <set>

#include "support/catch.h"
#include "support/fixture.h"

using dtk::models::Dit;
using dtk::models::DitOptions;
using dtk::models::Tensors;

namespace {

at::Generator generator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

DitOptions tiny_options() {
  DitOptions options;
  options.depth = 2;
  options.hidden = 64;
  options.heads = 4;
  options.patch = 2;
  options.image_size = 8;
  options.classes = 10;
  return options;
}

Dit tiny_with_weights(const dtk::test::Fixture& fixture) {
  Dit dit(tiny_options(), at::kCPU, generator(1));
  dtk::test::load_parameters(dit.parameters(), fixture, "w.");
  return dit;
}

double worst_difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

int64_t count(const Dit& dit, bool trainable_only) {
  int64_t total = 0;
  for (const auto& [name, tensor] : dit.parameters()) {
    if (!trainable_only || tensor.requires_grad()) total += tensor.numel();
  }
  return total;
}

}  // namespace

TEST_CASE("every published size has the published number of parameters") {
  struct Row {
    const char* name;
    int64_t trainable;
    std::optional<int64_t> with_position_table;
    size_t blocks;
  };
  for (const Row& row :
       {Row{"DiT-S/2", 32865056, 32963360, 12}, Row{"DiT-S/4", 32920448, 32945024, 12},
        Row{"DiT-S/8", 33142016, 33148160, 12}, Row{"DiT-B/2", 130315808, 130512416, 12},
        Row{"DiT-B/4", 130426496, 130475648, 12}, Row{"DiT-B/8", 130869248, 130881536, 12},
        Row{"DiT-L/2", 457840672, 458102816, 24}, Row{"DiT-L/4", 457988224, 458053760, 24},
        Row{"DiT-L/8", 458578432, 458594816, 24}, Row{"DiT-XL/2", 674834720, 675129632, 28},
        Row{"DiT-XL/4", 675000704, 675074432, 28}, Row{"DiT-XL/8", 675664640, 675683072, 28}}) {
    DitOptions options;
    options.name = dtk::policies::parse_enum<dtk::models::DitPreset>(row.name).value();
    const Dit dit(options, at::kMeta);
    INFO(row.name);
    CHECK(count(dit, true) == row.trainable);
    CHECK(count(dit, false) == row.with_position_table);
    CHECK(dit.parameters().size() == 12 + 10 * row.blocks);
  }
}

TEST_CASE("a new DiT outputs exactly zero and its blocks are the identity") {
  Dit dit(tiny_options(), at::kCPU, generator(3));
  at::NoGradGuard no_grad;
  Tensors block_inputs, block_outputs;
  dit.seam.run = [&](std::string_view path, const dtk::models::ModuleFn& fn, Tensors&& in) {
    const bool block = path.substr(0, 7) == "blocks.";
    if (block) block_inputs.push_back(in[0]);
    Tensors out = fn(std::move(in));
    if (block) block_outputs.push_back(out[0]);
    return out;
  };
  const at::Tensor out =
      dit.forward(at::randn({2, 4, 8, 8}), at::tensor({3.0f, 700.5f}), at::tensor({1L, 2L}), false);
  CHECK(out.sizes() == at::IntArrayRef({2, 8, 8, 8}));
  CHECK(at::equal(out, at::zeros_like(out)));
  REQUIRE(block_inputs.size() == 2);
  for (size_t i = 0; i < 2; ++i) CHECK(at::equal(block_inputs[i], block_outputs[i]));
}

TEST_CASE("outputs, loss and every gradient equal the original's on shared weights") {
  const dtk::test::Fixture fixture = dtk::test::read_fixture("dit_tiny");
  Dit dit = tiny_with_weights(fixture);
  dit.seam.fuses = [fuses = GENERATE(false, true)](std::string_view) { return fuses; };
  const at::Tensor out = dit.forward(fixture.at("x"), fixture.at("t"), fixture.at("y"), /*training=*/false);
  // Ten times the original's own gap between fp32 and fp64 (9.6e-7 at outputs, 4.2e-7 relative in gradients).
  CHECK(worst_difference(out, fixture.at("out64")) < 1e-5);
  const at::Tensor loss = at::mse_loss(out, fixture.at("target"));
  CHECK(loss.item<double>() == Approx(1.9791131359148395).epsilon(1e-6));
  torch::autograd::backward({loss}, {});
  std::map<std::string, at::Tensor> gradients;
  for (const auto& [name, parameter] : dit.parameters()) {
    INFO(name);
    CHECK(parameter.grad().defined() == (name != "pos_embed"));
    if (parameter.grad().defined()) gradients[name] = parameter.grad();
  }
  // The fixture holds the norm of every gradient and five gradients in full.
  const at::Tensor norms = fixture.at("grad.norms_sorted_by_name");
  REQUIRE(gradients.size() == 31);
  int64_t index = 0;
  for (const auto& [name, gradient] : gradients) {
    INFO(name);
    const auto wanted = norms[index++].item<double>();
    CHECK(gradient.to(at::kDouble).norm().item<double>() == Approx(wanted).epsilon(5e-6));
  }
  int full = 0;
  for (const auto& [name, gradient] : gradients) {
    if (!fixture.has("grad." + name)) continue;
    INFO(name);
    const at::Tensor& wanted = fixture.at("grad." + name);
    CHECK(worst_difference(gradient, wanted) <= 5e-6 * wanted.abs().max().item<double>());
    ++full;
  }
  CHECK(full == 5);
}

TEST_CASE("the position table equals the original's") {
  const dtk::test::Fixture fixture = dtk::test::read_fixture("dit_tiny");
  CHECK(worst_difference(dtk::models::position_table(64, 4), fixture.at("w.pos_embed")) < 1e-7);
}

TEST_CASE("guidance on three channels equals the released code; on all channels it is the standard form") {
  const dtk::test::Fixture fixture = dtk::test::read_fixture("diffusion_golden");
  const dtk::test::Fixture weights = dtk::test::read_fixture("dit_tiny");
  const Dit dit = tiny_with_weights(weights);
  at::NoGradGuard no_grad;
  const at::Tensor x = fixture.at("cfg.x"), t = fixture.at("cfg.t").to(at::kFloat), y = fixture.at("cfg.y");
  const int64_t half = x.size(0) / 2;
  const auto guided = [&](int64_t channels) {
    return dit.forward_guided(x.narrow(0, 0, half), t.narrow(0, 0, half), y.narrow(0, 0, half), 4.0,
                              channels);
  };
  // Ten times the original's own gap between fp32 and fp64.
  const auto wanted = [&](const std::string& name) { return fixture.at(name).narrow(0, 0, half); };
  CHECK(worst_difference(guided(3), wanted("cfg.out_3_channels.fp64")) <= 3.61e-5);
  CHECK(worst_difference(guided(0), wanted("cfg.out_all_channels.fp64")) <= 3.61e-5);
  // What learns the variance, and the channel beyond the third, are the output for the class.
  const at::Tensor raw = wanted("cfg.raw.fp64");
  CHECK(worst_difference(guided(0).narrow(1, 4, 4), raw.narrow(1, 4, 4)) <= 9.79e-6);
  CHECK(worst_difference(guided(3).narrow(1, 3, 5), raw.narrow(1, 3, 5)) <= 9.79e-6);
  CHECK(worst_difference(guided(3), guided(0)) > 1e-2);  // the two forms do differ
  CHECK_THROWS_WITH(guided(5), "guided_channels = 5; allowed: 0 (all) to 4");
}

TEST_CASE("the guided output of the original is reproduced on its stored batch") {
  const dtk::test::Fixture fixture = dtk::test::read_fixture("dit_tiny");
  const Dit dit = tiny_with_weights(fixture);
  at::NoGradGuard no_grad;
  const at::Tensor rows = at::tensor({0L, 1L});
  const at::Tensor out =
      dit.forward_guided(fixture.at("x").index_select(0, rows), fixture.at("t").index_select(0, rows),
                         at::tensor({3L, 9L}), 4.0, 3);
  CHECK(worst_difference(out, fixture.at("cfg_out").narrow(0, 0, 2)) < 4.6e-5);
}

TEST_CASE("forced label drop equals the original's") {
  const dtk::test::Fixture fixture = dtk::test::read_fixture("diffusion_golden");
  const dtk::test::Fixture weights = dtk::test::read_fixture("dit_tiny");
  Dit dit = tiny_with_weights(weights);
  at::NoGradGuard no_grad;
  at::Tensor embedding;
  dit.seam.run = [&](std::string_view path, const dtk::models::ModuleFn& fn, Tensors&& in) {
    Tensors out = fn(std::move(in));
    if (path == "y_embedder") embedding = out[0];
    return out;
  };
  const at::Tensor out =
      dit.forward(fixture.at("label_drop.x"), fixture.at("label_drop.t"), fixture.at("label_drop.y"), true,
                  fixture.at("label_drop.force_drop_ids"));
  CHECK(worst_difference(out, fixture.at("label_drop.out.fp64")) <= 9.43e-6);
  CHECK(worst_difference(embedding, fixture.at("label_drop.label_embedding.fp64")) == 0);
  const at::Tensor plain = dit.forward(fixture.at("label_drop.x"), fixture.at("label_drop.t"),
                                       fixture.at("label_drop.y_after"), /*training=*/false);
  CHECK(at::equal(plain, out));
}

TEST_CASE("labels are dropped at the given rate in training only") {
  DitOptions options = tiny_options();
  Dit dit(options, at::kCPU, generator(5));
  at::NoGradGuard no_grad;
  int64_t dropped = 0;
  const at::Tensor null_row = dit.parameters()[7].second[10];
  REQUIRE(dit.parameters()[7].first == "y_embedder.embedding_table.weight");
  dit.seam.run = [&](std::string_view path, const dtk::models::ModuleFn& fn, Tensors&& in) {
    Tensors out = fn(std::move(in));
    if (path == "y_embedder") dropped = (out[0] == null_row).all(1).sum().item<int64_t>();
    return out;
  };
  at::manual_seed(11);
  const at::Tensor x = at::zeros({4000, 4, 8, 8});
  const at::Tensor t = at::zeros({4000});
  const at::Tensor y = at::full({4000}, 3, at::kLong);
  dit.forward(x, t, y, true);
  CHECK(dropped > 320);  // 400 expected, standard deviation 19
  CHECK(dropped < 480);
  dit.forward(x, t, y, false);
  CHECK(dropped == 0);
}

TEST_CASE("every module runs through the seam once, in the order of paths()") {
  Dit dit(tiny_options(), at::kCPU, generator(5));
  std::vector<std::string> seen;
  std::map<std::string, int> kept;
  int attentions = 0;
  size_t offered = 0;
  const std::vector<std::string> results = {"qkv_out", "attn_out", "proj_out", "fc1_out", "fc2_out"};
  dit.seam.run = [&](std::string_view path, const dtk::models::ModuleFn& fn, Tensors&& in) {
    seen.emplace_back(path);
    return fn(std::move(in));
  };
  dit.seam.keep = [&](std::string_view name, at::Tensor value) {
    CHECK(name == results.at(offered++ % results.size()));
    ++kept[std::string(name)];
    return value;
  };
  const auto stock = dit.seam.attention;
  dit.seam.attention = [&](at::Tensor q, at::Tensor k, at::Tensor v, const dtk::models::AttentionCall& call) {
    CHECK(q.sizes() == at::IntArrayRef({2, 4, 16, 16}));
    ++attentions;
    return stock(std::move(q), std::move(k), std::move(v), call);
  };
  at::NoGradGuard no_grad;
  dit.forward(at::zeros({2, 4, 8, 8}), at::zeros({2}), at::zeros({2}, at::kLong), true);
  CHECK(seen == std::vector<std::string>{"x_embedder", "t_embedder", "y_embedder", "blocks.0", "blocks.1",
                                         "final_layer"});
  CHECK(seen == dit.paths());
  CHECK(attentions == 2);
  for (const std::string& name : results) CHECK(kept[name] == 2);
  CHECK(kept.size() == results.size());
  for (const char* name : dtk::models::dit_kept_results) CHECK(kept.count(name) == 1);
}

TEST_CASE("a module may be recomputed after forward has returned") {
  const dtk::test::Fixture fixture = dtk::test::read_fixture("dit_tiny");
  Dit dit = tiny_with_weights(fixture);
  struct Call {
    dtk::models::ModuleFn fn;
    Tensors in, out;
  };
  std::map<std::string, Call> calls;
  dit.seam.run = [&](std::string_view path, const dtk::models::ModuleFn& fn, Tensors&& in) {
    Call& call = calls[std::string(path)];
    call.fn = fn;
    call.in = in;
    call.out = fn(std::move(in));
    return call.out;
  };
  at::NoGradGuard no_grad;
  dit.forward(fixture.at("x"), fixture.at("t"), fixture.at("y"), false);
  for (auto& [path, call] : calls) {
    INFO(path);
    CHECK(at::equal(call.fn(Tensors(call.in))[0], call.out[0]));
  }
  CHECK(calls.size() == 6);
}

TEST_CASE("mlp_dropout acts in training only and is off by default") {
  const dtk::test::Fixture fixture = dtk::test::read_fixture("dit_tiny");
  DitOptions options = tiny_options();
  options.class_dropout = 0.0;
  options.mlp_dropout = 0.5;
  Dit dit(options, at::kCPU, generator(1));
  for (const auto& [name, tensor] : dit.parameters()) {
    at::NoGradGuard no_grad;
    if (name.find("embedding_table") == std::string::npos) tensor.detach().copy_(fixture.at("w." + name));
  }
  at::NoGradGuard no_grad;
  const auto run = [&](bool training) {
    return dit.forward(fixture.at("x"), fixture.at("t"), at::arange(3), training);  // no null label here
  };
  CHECK(at::equal(run(false), run(false)));
  CHECK_FALSE(at::equal(run(true), run(true)));
  CHECK(DitOptions().mlp_dropout == 0.0);
}
