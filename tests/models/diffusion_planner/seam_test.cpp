// How the driving model runs: its modules through the seam, dropout, and what it refuses.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <set>

#include "diffusion_planner/blocks.h"
#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/diffusion_planner/model.h"
#include "support/diffusion_planner/policies.h"
#include "support/error_text.h"
#include "support/same_bits.h"

using namespace dtk::models;
using namespace dtk::test;
namespace policies = dtk::policies;

namespace {

struct Evaluation {
  at::Tensor encoding, output, logit;
};

Evaluation evaluate(const DiffusionPlanner& model, const DrivingScene& scene, bool training) {
  const c10::Device device = scene.lanes.device();
  const auto [x, t] = noise_at_half(model.options(), scene.lanes.size(0), device);
  Evaluation all;
  const DrivingContext context = model.encode(scene, training);
  all.encoding = context.encoding;
  all.output = model.denoise(x, t, context, training);
  if (!model.options().upstream()) all.logit = model.turn_indicator(x.select(1, 0), context.encoding);
  return all;
}

DrivingScene fixture_scene(const std::string& preset) {
  return small_scene(read_fixture("diffusion_planner/model"), preset == "UP");
}

/// With dropout everywhere.
DiffusionPlanner dropping_diffusion_planner(const std::string& preset, c10::Device device) {
  DiffusionPlannerOptions options = small_diffusion_planner_options(preset);
  options.encoder_dropout = options.decoder_dropout = 0.1;
  if (!options.upstream()) options.ego_history_dropout = 0.4;
  DiffusionPlanner model(options, device);
  set_weights(model.parameters());
  return model;
}

// Gradients of one step of training under the policies.
std::vector<at::Tensor> train(const policies::PolicyOptions& options, const std::string& preset,
                              const DrivingScene& scene) {
  DiffusionPlanner model = dropping_diffusion_planner(preset, scene.lanes.device());
  policies::PolicySet set = put_in(options, model);
  at::manual_seed(21);
  at::Tensor loss;
  {
    const auto scope = set.forward_scope();
    const Evaluation all = evaluate(model, scene, true);
    loss = all.output.square().mean();
    if (all.logit.defined()) loss = loss + all.logit.square().mean();
  }
  torch::autograd::backward({loss}, {});
  set.before_step();
  set.after_step();
  std::vector<at::Tensor> gradients;
  for (const auto& [name, tensor] : model.parameters()) {
    INFO(name);
    REQUIRE(tensor.grad().defined());
    gradients.push_back(tensor.grad());
  }
  return gradients;
}

}  // namespace

TEST_CASE("every module of the driving model runs through the seam once, in the order of paths()") {
  for (const std::string preset : {"H", "M", "UP"}) {
    INFO(preset);
    DiffusionPlanner model = small_diffusion_planner(preset);
    std::vector<std::string> seen;
    std::map<std::string, int> kept;
    int attentions = 0;
    model.seam.run = [&](std::string_view path, const ModuleFn& fn, Tensors&& in) {
      seen.emplace_back(path);
      return fn(std::move(in));
    };
    model.seam.keep = [&](std::string_view name, at::Tensor value) {
      ++kept[std::string(name)];
      return value;
    };
    const Attention stock = model.seam.attention;
    model.seam.attention = [&](at::Tensor q, at::Tensor k, at::Tensor v,
                               const dtk::models::AttentionCall& call) {
      ++attentions;
      return stock(std::move(q), std::move(k), std::move(v), call);
    };
    at::NoGradGuard no_grad;
    evaluate(model, fixture_scene(preset), true);
    CHECK(seen == model.paths());
    CHECK(attentions == 2 + 2 * 2);
    CHECK(kept.at("attn_out") == attentions);
    CHECK(kept.at("proj_out") == attentions);
    CHECK(kept.at("fc2_out") > 20);
    CHECK(kept.at("fc1_out") > 0);
    CHECK(kept.size() == 4);
    // Each is there once.
    CHECK(std::set<std::string>(seen.begin(), seen.end()).size() == seen.size());
  }
}

TEST_CASE("paths name what targets and fp32 ends are chosen by") {
  DiffusionPlannerOptions options;
  const std::vector<std::string> h = DiffusionPlanner(options, at::kMeta).paths();
  options.preset = DiffusionPlannerPreset::up;
  const std::vector<std::string> up = DiffusionPlanner(options, at::kMeta).paths();
  const auto has = [](const std::vector<std::string>& paths, const std::string& path) {
    return std::count(paths.begin(), paths.end(), path) == 1;
  };
  for (const char* path :
       {"encoder.ego_encoder", "encoder.lane_encoder", "encoder.lane_encoder.blocks.3",
        "encoder.route_encoder.blocks.5", "encoder.fusion.blocks.5", "encoder.pos_emb", "decoder.dit.preproj",
        "decoder.dit.preproj.fc1", "decoder.dit.t_embedder.fc1", "decoder.dit.blocks.2",
        "decoder.dit.final_layer", "decoder.dit.final_layer.proj.4", "decoder.turn_indicator_predictor"}) {
    INFO(path);
    CHECK(has(h, path));
  }
  CHECK(h.size() == 6 * (1 + 6) + 4 + 1 + 6 + 1 + 2 + 2 + 3 + 2 + 1);
  for (const char* path : {"encoder.encoder.lane_encoder.blocks.2", "encoder.encoder.fusion.blocks.2",
                           "decoder.decoder.dit.route_encoder.Mixer", "decoder.decoder.dit.t_embedder.mlp.0",
                           "decoder.decoder.dit.blocks.2"}) {
    INFO(path);
    CHECK(has(up, path));
  }
}

TEST_CASE("a module of the driving model may run again after its forward pass is over") {
  for (const std::string preset : {"H", "UP"}) {
    DiffusionPlanner model = small_diffusion_planner(preset);
    struct Call {
      std::string path;
      ModuleFn fn;
      Tensors in, out;
    };
    std::vector<Call> calls;
    model.seam.run = [&](std::string_view path, const ModuleFn& fn, Tensors&& in) {
      Call call{std::string(path), fn, in, {}};
      Tensors out = fn(std::move(in));
      call.out = out;
      calls.push_back(std::move(call));
      return out;
    };
    at::NoGradGuard no_grad;
    evaluate(model, fixture_scene(preset), false);
    model.seam.run = Seam().run;
    REQUIRE(calls.size() == model.paths().size());
    for (Call& call : calls) {
      INFO(call.path);
      CHECK(at::equal(call.fn(Tensors(call.in))[0], call.out[0]));
    }
  }
}

TEST_CASE("with every module recomputed, nested, gradients with dropout are bit-equal") {
  policies::PolicyOptions plain = policies::PolicyOptions::all_off();
  plain.attention.enabled = policies::Enabled::by_default;
  for (const std::string preset : {"H", "UP"}) {
    INFO(preset);
    const DrivingScene scene = fixture_scene(preset);
    const auto baseline = train(plain, preset, scene);
    const auto again = train(plain, preset, scene);
    policies::PolicyOptions options = plain;
    options.checkpoint.enabled = policies::Enabled::on;
    options.checkpoint.targets = small_diffusion_planner(preset).paths();
    const auto before = policies::checkpoint_counts();
    const auto recomputed = train(options, preset, scene);
    CHECK(policies::checkpoint_counts().segments - before.segments >=
          static_cast<int64_t>(options.checkpoint.targets.size()));
    for (size_t i = 0; i < baseline.size(); ++i) {
      REQUIRE(same_bits(baseline[i], again[i]));
      CHECK(same_bits(baseline[i], recomputed[i]));
    }
  }
}

// The simulated device throws where a value is read.
TEST_CASE("a training step of the driving model reads no value, in fp32 and in bf16 with fp32 ends",
          "[device]") {
  for (const std::string preset : {"H", "M", "UP"}) {
    INFO(preset);
    const DrivingScene scene = full_scene(small_diffusion_planner_options(preset), 2, test_device());
    policies::PolicyOptions options = policies::PolicyOptions::all_off();
    CHECK_NOTHROW(train(options, preset, scene));
    options.precision.enabled = policies::Enabled::on;
    const std::string dit = preset == "UP" ? "decoder.decoder.dit." : "decoder.dit.";
    options.precision.fp32 = {dit + "preproj.fc1", dit + "final_layer.proj.4",
                              dit + (preset == "UP" ? "t_embedder.mlp.0" : "t_embedder.fc1")};
    options.checkpoint.enabled = policies::Enabled::on;
    options.checkpoint.targets = {dit + "blocks.*"};
    CHECK_NOTHROW(train(options, preset, scene));
  }
}

TEST_CASE("the ends of the driving model's trajectories stay fp32 under bf16 where it is asked for") {
  DiffusionPlanner model = small_diffusion_planner("H");
  policies::PolicyOptions options = policies::PolicyOptions::all_off();
  options.precision.enabled = policies::Enabled::on;
  options.precision.fp32 = {"decoder.dit.preproj.fc1", "decoder.dit.final_layer.proj.4"};
  policies::PolicySet set = put_in(options, model);
  std::map<std::string, at::ScalarType> results;
  model.seam.run = [&, inner = model.seam.run](std::string_view path, const ModuleFn& fn, Tensors&& in) {
    Tensors out = inner(path, fn, std::move(in));
    results.emplace(path, out[0].scalar_type());
    return out;
  };
  at::NoGradGuard no_grad;
  const auto scope = set.forward_scope();
  evaluate(model, fixture_scene("H"), false);
  CHECK(results.at("decoder.dit.preproj.fc1") == at::kFloat);
  CHECK(results.at("decoder.dit.preproj") == at::kBFloat16);
  CHECK(results.at("decoder.dit.final_layer.proj.4") == at::kFloat);
  CHECK(results.at("decoder.dit.final_layer") == at::kFloat);
  CHECK(results.at("decoder.dit.t_embedder.fc1") == at::kBFloat16);
}

TEST_CASE("the driving model's dropout acts in training only") {
  for (const std::string preset : {"H", "UP"}) {
    INFO(preset);
    const DiffusionPlanner model = dropping_diffusion_planner(preset, at::kCPU);
    const DrivingScene scene = fixture_scene(preset);
    at::NoGradGuard no_grad;
    const Evaluation a = evaluate(model, scene, false), b = evaluate(model, scene, false);
    CHECK(at::equal(a.output, b.output));
    CHECK_FALSE(at::equal(evaluate(model, scene, true).encoding, evaluate(model, scene, true).encoding));
    const DrivingContext context = model.encode(scene, false);
    const auto [x, t] = noise_at_half(model.options(), 3, at::kCPU);
    CHECK_FALSE(at::equal(model.denoise(x, t, context, true), model.denoise(x, t, context, true)));
  }
}

TEST_CASE("the history dropout takes channels of the ego's token and nothing else") {
  DiffusionPlannerOptions options = small_diffusion_planner_options("H");
  options.ego_history_dropout = 0.4;
  DiffusionPlanner model(options, at::kCPU);
  set_weights(model.parameters());
  at::Tensor places, tokens;
  model.seam.run = [&](std::string_view path, const ModuleFn& fn, Tensors&& in) {
    if (path == "encoder.fusion.blocks.0") tokens = in[0];
    Tensors out = fn(std::move(in));
    if (path == "encoder.pos_emb") places = out[0];
    return out;
  };
  at::NoGradGuard no_grad;
  at::manual_seed(3);
  const DrivingScene scene = full_scene(options, 200, at::kCPU);
  model.encode(scene, false);
  const at::Tensor whole = tokens.clone(), ego = whole.select(1, 0) - places.select(1, 0);
  model.encode(scene, true);
  CHECK(at::equal(tokens.narrow(1, 1, 28), whole.narrow(1, 1, 28)));
  const at::Tensor dropped = tokens.select(1, 0) - places.select(1, 0);
  const at::Tensor gone = dropped.abs() < 1e-6;
  CHECK(gone.to(at::kDouble).mean().item<double>() == Approx(0.4).margin(0.02));  // of 12,800
  CHECK(at::allclose(dropped, at::where(gone, 0.0, ego / 0.6), 1e-4, 1e-5));
}

TEST_CASE("drop path takes whole samples and divides the others by the probability to stay") {
  using dtk::models::diffusion_planner::Pass;
  const Seam seam;
  at::manual_seed(4);
  const at::Tensor x = at::ones({4000, 2, 3});
  const at::Tensor dropped = Pass{&seam, true}.drop_path(x, 0.25);
  const at::Tensor first = dropped.select(1, 0).select(1, 0);
  CHECK(at::equal(dropped, first.view({4000, 1, 1}).expand({4000, 2, 3})));
  CHECK(at::allclose(first, at::where(first == 0, 0.0, at::full({4000}, 1 / 0.75))));
  CHECK((first == 0).sum().item<int64_t>() > 880);  // 1000 expected, standard deviation 27
  CHECK((first == 0).sum().item<int64_t>() < 1120);
  CHECK(at::equal(Pass{&seam, false}.drop_path(x, 0.25), x));
}

TEST_CASE("tensors of other shapes are refused by name") {
  const DiffusionPlanner model = small_diffusion_planner("H");
  at::NoGradGuard no_grad;
  DrivingScene scene = fixture_scene("H");
  scene.lanes = scene.lanes.narrow(1, 0, 5);
  CHECK(error_text<std::invalid_argument>([&] { model.encode(scene, false); }) ==
        "scene.lanes: [3, 5, 20, 33]; diffusion_planner.preset = \"H\" reads the shape [N, 7, 20, 33], with "
        "the N >= 1 "
        "of neighbor_agents_past (3); build the batch with the model's sizes, or the model with those of the "
        "data");
  scene = fixture_scene("H");
  scene.ego_shape.reset();
  CHECK(error_text<std::invalid_argument>([&] { model.encode(scene, false); }) ==
        "scene.ego_shape: undefined; diffusion_planner.preset = \"H\" reads the shape [N, 3], with the N >= "
        "1 of "
        "neighbor_agents_past (3); build the batch with the model's sizes, or the model with those of the "
        "data");
  scene = fixture_scene("H");
  const DrivingContext context = model.encode(scene, false);
  CHECK(error_text<std::invalid_argument>([&] {
          model.denoise(at::zeros({3, 5, 80, 4}), at::zeros({3}), context, false);
        }) ==
        "denoise: x [3, 5, 80, 4] at t [3]; diffusion_planner.preset = \"H\" takes x [3, 5, 81, 4] and t [3, "
        "5, 81, 1]");
  CHECK_THROWS_WITH(
      small_diffusion_planner("UP").turn_indicator(at::zeros({3, 81, 4}), at::zeros({3, 16, 64})),
      "diffusion_planner.preset = \"UP\" has no turn indicator; use \"H\" or \"M\"");
}
