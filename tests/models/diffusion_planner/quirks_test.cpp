// What the driving model computes as published although one would not expect it.
#include <ATen/ATen.h>

#include <map>

#include "support/catch.h"
#include "support/diffusion_planner/model.h"

using namespace dtk::models;
using namespace dtk::test;

namespace {

// Inputs of modules by path, of one encoding.
std::map<std::string, Tensors> inputs_of(DiffusionPlanner& model, const DrivingScene& scene) {
  at::NoGradGuard no_grad;
  std::map<std::string, Tensors> seen;
  model.seam.run = [&](std::string_view path, const ModuleFn& fn, Tensors&& in) {
    seen[std::string(path)] = in;
    return fn(std::move(in));
  };
  model.encode(scene, false);
  model.seam.run = Seam().run;
  return seen;
}

DrivingScene scene(const std::string& preset) {
  return small_scene(read_fixture("diffusion_planner/model"), preset == "UP");
}

// Of the small sizes: ego, 6 neighbours, 3 static objects, 7 lanes, 3 of the route, 2 polygons, 4 lines.
constexpr int64_t kFirstPolygon = 20, kFirstLine = 22, kGoal = 26, kShape = 27, kTurn = 28;

bool same(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a, b);
}

at::Tensor encoding(const DiffusionPlanner& model, const DrivingScene& scene) {
  at::NoGradGuard no_grad;
  return model.encode(scene, false).encoding;
}

}  // namespace

TEST_CASE("headings of polygons and lines come from type flags and the step in x") {
  DiffusionPlanner model = small_diffusion_planner("H");
  DrivingScene changed = scene("H");
  changed.polygons.zero_();
  changed.line_strings.zero_();
  // In the middle a step of (3, 4): its heading would be (0.6, 0.8).
  at::Tensor polygon = changed.polygons.select(0, 0).select(0, 0);   // (40, 3)
  at::Tensor line = changed.line_strings.select(0, 0).select(0, 0);  // (20, 4)
  polygon.copy_(at::tensor({1.0f, 1.0f, 4.0f}).expand({40, 3}));
  polygon.select(0, 21).copy_(at::tensor({4.0f, 5.0f, 4.0f}));
  line.copy_(at::tensor({1.0f, 1.0f, 0.8f, 0.6f}).expand({20, 4}));
  line.select(0, 11).copy_(at::tensor({4.0f, 5.0f, 0.8f, 0.6f}));
  const at::Tensor places = inputs_of(model, changed).at("encoder.pos_emb")[0][0];  // (29, 14)
  // A polygon's features are x, y, flag, dx, dy: atan2(dx, flag). A line's x, y, two flags, dx, dy.
  CHECK(at::allclose(places[kFirstPolygon].narrow(0, 0, 4), at::tensor({1.0f, 1.0f, 0.8f, 0.6f})));
  CHECK(at::allclose(places[kFirstLine].narrow(0, 0, 4), at::tensor({1.0f, 1.0f, 0.8f, 0.6f})));
  // The step in y is no part of either.
  polygon.select(0, 21).select(0, 1).fill_(9);
  line.select(0, 11).fill_(7);
  const at::Tensor again = inputs_of(model, changed).at("encoder.pos_emb")[0][0];
  CHECK(same(again[kFirstPolygon], places[kFirstPolygon]));
  CHECK(same(again[kFirstLine], places[kFirstLine]));
  // Of a lane the direction is what it says.
  changed.lanes.select(2, 10).narrow(2, 2, 2).copy_(at::tensor({3.0f, 4.0f}).expand({3, 7, 2}));
  const at::Tensor lane = inputs_of(model, changed).at("encoder.pos_emb")[0][0][10];
  CHECK(at::allclose(lane.narrow(0, 2, 2), at::tensor({0.6f, 0.8f})));
}

TEST_CASE("the turn indicator's token has the class of the ego shape, and the tenth class is unused") {
  DiffusionPlanner model = small_diffusion_planner("H");
  const at::Tensor places = inputs_of(model, scene("H")).at("encoder.pos_emb")[0];  // (3, 29, 14)
  const at::Tensor kinds = places.narrow(2, 4, 10);
  CHECK(same(kinds.sum(-1), at::ones({3, 29})));
  const at::Tensor kind = kinds.argmax(-1)[0];
  CHECK(kind[0].item<int64_t>() == 0);
  CHECK(kind[kGoal].item<int64_t>() == 7);
  CHECK(kind[kShape].item<int64_t>() == 8);
  CHECK(kind[kTurn].item<int64_t>() == 8);
  CHECK(kinds.select(2, 9).abs().max().item<double>() == 0);
  const at::Tensor origin = at::tensor({0.0f, 0.0f, 1.0f, 0.0f});
  CHECK(same(places[0][kTurn].narrow(0, 0, 4), origin));
  CHECK(same(places[0][kShape].narrow(0, 0, 4), origin));
}

TEST_CASE("in the fusion only queries are normalised") {
  DiffusionPlanner model = small_diffusion_planner("H");
  at::NoGradGuard no_grad;
  at::Tensor x, q, k, v;
  model.seam.run = [&](std::string_view path, const ModuleFn& fn, Tensors&& in) {
    if (path == "encoder.fusion.blocks.0") x = in[0];
    return fn(std::move(in));
  };
  const Attention stock = model.seam.attention;
  model.seam.attention = [&](at::Tensor a, at::Tensor b, at::Tensor c,
                             const dtk::models::AttentionCall& call) {
    if (!q.defined()) q = a, k = b, v = c;
    return stock(std::move(a), std::move(b), std::move(c), call);
  };
  model.encode(scene("H"), false);
  std::map<std::string, at::Tensor> w;
  for (const auto& [name, tensor] : model.parameters()) w[name] = tensor;
  const std::string block = "encoder.fusion.blocks.0.";
  const at::Tensor normed =
      at::layer_norm(x, {64}, w.at(block + "norm1.weight"), w.at(block + "norm1.bias"), 1e-5);
  const auto heads = [&](const at::Tensor& of, int64_t part) {
    const at::Tensor weight = w.at(block + "attn.in_proj_weight").narrow(0, 64 * part, 64);
    const at::Tensor bias = w.at(block + "attn.in_proj_bias").narrow(0, 64 * part, 64);
    return at::linear(of, weight, bias).view({3, 29, 4, 16}).transpose(1, 2);
  };
  CHECK(at::allclose(q, heads(normed, 0), 1e-5, 1e-5));
  CHECK(at::allclose(k, heads(x, 1), 1e-5, 1e-5));
  CHECK(at::allclose(v, heads(x, 2), 1e-5, 1e-5));
  CHECK_FALSE(at::allclose(k, heads(normed, 1), 1e-2, 1e-2));
}

TEST_CASE("of the ego's past H sees the six latest steps and M the six oldest, without the current one") {
  for (const std::string preset : {"H", "M"}) {
    INFO(preset);
    const bool oldest = preset == "M";
    DiffusionPlanner model = small_diffusion_planner(preset);
    const DrivingScene scene = ::scene(preset);
    const at::Tensor before = scene.ego_agent_past.clone();
    const at::Tensor neighbors = scene.neighbor_agents_past.clone();
    const at::Tensor plain = encoding(model, scene);
    for (int64_t step = 0; step < 31; ++step) {
      INFO(step);
      DrivingScene moved = scene;
      moved.ego_agent_past = scene.ego_agent_past.clone();
      moved.ego_agent_past.select(1, step).add_(0.5);
      const bool seen = oldest ? step < 6 : step >= 25;
      CHECK(same(encoding(model, moved), plain) != seen);
    }
    // The ego's place is that of the last row: 0 where the current step is dropped.
    const at::Tensor place = inputs_of(model, scene).at("encoder.pos_emb")[0].select(1, 0).narrow(1, 0, 4);
    CHECK(same(place, oldest ? at::zeros({3, 4}) : scene.ego_agent_past.select(1, 30)));
    // The published code of M zeroes the steps in the batch itself; here a batch stays as it is.
    CHECK(same(scene.ego_agent_past, before));
    CHECK(same(scene.neighbor_agents_past, neighbors));
  }
}

TEST_CASE("of a neighbour's past the tier4 presets see the six latest steps, without speed; UP sees all") {
  for (const std::string preset : {"H", "M", "UP"}) {
    INFO(preset);
    const bool all = preset == "UP";
    DiffusionPlanner model = small_diffusion_planner(preset);
    const DrivingScene scene = ::scene(preset);
    const at::Tensor plain = encoding(model, scene);
    const int64_t steps = scene.neighbor_agents_past.size(2);
    const auto changes = [&](int64_t step, int64_t feature) {
      DrivingScene moved = scene;
      moved.neighbor_agents_past = scene.neighbor_agents_past.clone();
      moved.neighbor_agents_past.select(2, step).select(2, feature).mul_(1.5);  // absent ones stay 0
      return !same(encoding(model, moved), plain);
    };
    CHECK(changes(steps - 1, 0));
    CHECK(changes(steps - 6, 0));
    CHECK(changes(steps - 7, 0) == all);
    CHECK(changes(0, 0) == all);
    CHECK(changes(steps - 2, 4) == all);
    CHECK(changes(steps - 2, 6));
  }
}

TEST_CASE("an object whose tested features are exactly 0 is absent, whatever else it has") {
  DiffusionPlanner model = small_diffusion_planner("H");
  DrivingScene scene = ::scene("H");
  scene.lanes = scene.lanes.clone();
  scene.lanes.select(1, 0).zero_();
  scene.lanes.select(1, 0).narrow(2, 8, 25).fill_(1);  // lights and line types alone do not make a lane
  scene.lanes.select(1, 1).fill_(0.25);
  scene.neighbor_agents_past.select(1, 0).zero_();
  scene.neighbor_agents_past.select(1, 0).narrow(2, 8, 3).fill_(1);  // nor does a type a neighbour
  scene.neighbor_agents_past.select(1, 1).fill_(0.25);
  scene.neighbor_agents_past.select(1, 1).select(1, 30).narrow(1, 0, 4).zero_();  // at the origin now
  const DrivingContext context = model.encode(scene, false);
  const auto absent = [&](int64_t token) {
    const at::Tensor attend = context.attend_context.select(3, token);
    CHECK(same(attend, at::zeros_like(attend)) ==
          same(context.encoding.select(1, token), at::zeros({3, 64})));
    return same(attend, at::zeros_like(attend));
  };
  CHECK(absent(1));        // the first neighbour
  CHECK_FALSE(absent(2));  // known from its past
  CHECK(absent(10));       // the first lane
  CHECK_FALSE(absent(11));
  CHECK_FALSE(absent(0));
  // The decoder asks where a neighbour is now, so that one at exactly (0, 0, 0, 0) is not attended to.
  const at::Tensor actors = context.attend_actors[0].flatten();
  CHECK(actors[0].item<bool>());
  CHECK_FALSE(actors[1].item<bool>());
  CHECK_FALSE(actors[2].item<bool>());
}

TEST_CASE("H masks absent objects for the decoder, M and UP do not") {
  for (const std::string preset : {"H", "M", "UP"}) {
    INFO(preset);
    DiffusionPlanner model = small_diffusion_planner(preset);
    DrivingScene scene = ::scene(preset);
    scene.lanes = at::zeros_like(scene.lanes);
    const DrivingContext context = model.encode(scene, false);
    CHECK(context.attend_context.defined() == (preset == "H"));
    const at::Tensor token = context.encoding.select(1, preset == "UP" ? 9 : 10);
    CHECK(same(token, at::zeros_like(token)) == (preset == "H"));
    // Absent objects are no keys of the fusion in any.
    DrivingScene other = scene;
    other.lanes_speed_limit = scene.lanes_speed_limit + 1;
    CHECK(same(encoding(model, other), context.encoding));
  }
}
