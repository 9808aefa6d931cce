// The augmentation against the original's, part by part, and the repairs of it.
#include "toolkit/families/diffusion_planner/augmentation.h"

#include <ATen/ATen.h>
#include <dtk/policies/guards.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "support/diffusion_planner/golden.h"
#include "support/error_text.h"

using namespace dtk;
using namespace dtk::diffusion_planner;
using test::largest;
using test::OriginalNumbers;

namespace {

FrameBatch scene_of(const OriginalNumbers& golden, const std::string& prefix, at::ScalarType type) {
  const auto entry = [&](const char* name) { return golden.at(prefix + name, type); };
  const bool input = prefix == "aug.in.";
  FrameBatch scene;
  scene.ego_agent_past = entry("ego_agent_past");
  scene.ego_current_state = entry("ego_current_state");
  scene.ego_agent_future = golden.at(input ? "aug.in.ego_agent_future" : "aug.plain.ego_future", type);
  scene.neighbor_agents_past = entry("neighbor_agents_past");
  scene.neighbor_agents_future =
      golden.at(input ? "aug.in.neighbor_agents_future" : "aug.plain.neighbors_future", type);
  scene.static_objects = entry("static_objects");
  scene.lanes = entry("lanes"), scene.route_lanes = entry("route_lanes");
  scene.polygons = entry("polygons"), scene.line_strings = entry("line_strings");
  scene.goal_pose = entry("goal_pose"), scene.ego_shape = entry("ego_shape");
  return scene;
}

// The original's defects, of which the stored numbers are.
AugmentationOptions original() {
  return {
      .smooth = false, .shared_perturbation = true, .unmoved_goal_and_past = true, .shifted_reversing = true};
}

ShiftDraws draws_of(const OriginalNumbers& golden, at::ScalarType type) {
  const at::Tensor accepted = golden.at("aug.flag", type);
  at::Tensor scale = at::ones({8}, type);
  scale.index_put_({accepted}, golden.at("aug.draw.scale_normal", type));  // drawn for what is accepted only
  return {golden.at("aug.draw.coin", type), golden.at("aug.draw.uniform", type), scale};
}

FrameBatch augmented(const AugmentationOptions& options, const FrameBatch& scene, const ShiftDraws& draws) {
  return Augmentation(options, scene.ego_agent_future.size(1), at::kCPU).apply(scene, draws);
}

}  // namespace

TEST_CASE("diffusion_planner augmentation: shift, rejection and the way back are the original's") {
  const OriginalNumbers golden;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const FrameBatch scene = scene_of(golden, "aug.in.", type);
    const ShiftDraws draws = draws_of(golden, type);
    const at::Tensor state = shifted_state(scene, draws.uniform, original());
    golden.check("aug.state_before_reject", state);
    CHECK(at::equal(meets_something(scene, state), golden.at("aug.collision", type)));
    CHECK(at::equal(accepted_shifts(scene, state, draws.coin, original()), golden.at("aug.flag", type)));
    golden.check("aug.interpolated", rebuilt_future(scene.ego_agent_future, state, original()));
  }
}

TEST_CASE("diffusion_planner augmentation: all of a scene in its new frame is the original's") {
  const OriginalNumbers golden;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const FrameBatch scene = scene_of(golden, "aug.in.", type);
    const FrameBatch seen = augmented(original(), scene, draws_of(golden, type));
    golden.check("aug.plain.ego_future", seen.ego_agent_future);
    golden.check("aug.plain.neighbors_future", seen.neighbor_agents_future);
    golden.check("aug.plain.out.ego_agent_past", seen.ego_agent_past);
    golden.check("aug.plain.out.ego_current_state", seen.ego_current_state);
    golden.check("aug.plain.out.neighbor_agents_past", seen.neighbor_agents_past);
    golden.check("aug.plain.out.static_objects", seen.static_objects);
    golden.check("aug.plain.out.lanes", seen.lanes);
    golden.check("aug.plain.out.route_lanes", seen.route_lanes);
    golden.check("aug.plain.out.polygons", seen.polygons);
    golden.check("aug.plain.out.line_strings", seen.line_strings);
    golden.check("aug.plain.out.goal_pose", seen.goal_pose);
    CHECK(at::equal(seen.ego_shape, scene.ego_shape));
  }
}

TEST_CASE("diffusion_planner augmentation: smoothed as the original's in float64, and nothing else is") {
  const OriginalNumbers golden;
  AugmentationOptions options = original();
  options.smooth = true;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const FrameBatch seen = augmented(options, scene_of(golden, "aug.in.", type), draws_of(golden, type));
    CHECK(seen.ego_agent_future.scalar_type() == type);
    const at::Tensor wanted = golden.at("aug.smooth.ego_future.fp64", at::kDouble);
    CHECK(largest(seen.ego_agent_future.to(at::kDouble) - wanted) <= (type == at::kDouble ? 1e-6 : 1e-4));
    golden.check("aug.plain.neighbors_future", seen.neighbor_agents_future);
  }
}

TEST_CASE("diffusion_planner augmentation: one shared number shifts all nine, else each has its own") {
  const OriginalNumbers golden;
  const FrameBatch scene = scene_of(golden, "aug.in.", at::kDouble);
  AugmentationOptions options;
  const auto drawn = [&] {
    return draw_shift(scene, options, policies::make_generator(at::kCPU, 5)).uniform;
  };
  CHECK(drawn().sizes() == at::IntArrayRef({8, 9}));
  at::Tensor uniform = at::full({8, 9}, 0.5, at::kDouble);
  uniform.select(1, 1).fill_(1), uniform.select(1, 3).fill_(0.25);
  const at::Tensor change = shifted_state(scene, uniform, options) - scene.ego_current_state;
  CHECK(at::allclose(change.select(1, 1), at::full({8}, 0.75, at::kDouble)));
  CHECK(change[0][4].item<double>() == Approx(-0.5));
  CHECK(largest(change.narrow(1, 2, 2)) < 1e-12);  // yaw
  CHECK(largest(change.narrow(1, 5, 3)) < 1e-12);
  options.shared_perturbation = true;
  CHECK(drawn().sizes() == at::IntArrayRef({8, 1}));
  const at::Tensor shared =
      shifted_state(scene, at::ones({8, 1}, at::kDouble), options) - scene.ego_current_state;
  CHECK(shared[0][1].item<double>() == Approx(0.75));
  CHECK(shared[0][4].item<double>() == Approx(1));
  CHECK(shared[0][5].item<double>() == Approx(0.5));
}

TEST_CASE("diffusion_planner augmentation: draws follow the generator in their order") {
  const OriginalNumbers golden;
  const FrameBatch scene = scene_of(golden, "aug.in.", at::kFloat);
  const ShiftDraws draws = draw_shift(scene, {}, policies::make_generator(at::kCPU, 5));
  const at::Generator same = policies::make_generator(at::kCPU, 5);
  CHECK(at::equal(draws.coin, at::rand({8}, same)));
  CHECK(at::equal(draws.uniform, at::rand({8, 9}, same)));
  CHECK(at::equal(draws.scale, at::randn({8}, same) * 0.1 + 1));
}

TEST_CASE(
    "diffusion_planner augmentation: goal and past move with the frame unless they are left as in the "
    "original") {
  const OriginalNumbers golden;
  const FrameBatch scene = scene_of(golden, "aug.in.", at::kDouble);
  AugmentationOptions options = original();
  const FrameBatch left = augmented(options, scene, draws_of(golden, at::kDouble));
  CHECK(at::equal(left.goal_pose, scene.goal_pose));
  options.unmoved_goal_and_past = false;
  const FrameBatch moved = augmented(options, scene, draws_of(golden, at::kDouble));
  // Sample 1: seen back from the new frame, the goal is where it was, as the last pose of the past is.
  const at::Tensor state = golden.at("aug.state", at::kDouble)[1];
  const double cosine = state[2].item<double>(), sine = state[3].item<double>();
  const at::Tensor back = at::tensor({cosine, sine, -sine, cosine}, at::kDouble).view({2, 2});  // rows
  const auto place = [&](const at::Tensor& pose) {
    return at::mm(pose.narrow(0, 0, 2).unsqueeze(0), back)[0] + state.narrow(0, 0, 2);
  };
  CHECK(at::allclose(place(moved.goal_pose[1]), scene.goal_pose[1].narrow(0, 0, 2), 1e-5, 1e-5));
  CHECK(largest(moved.goal_pose[1] - scene.goal_pose[1]) > 0.1);
  CHECK(largest(place(moved.ego_agent_past[1][30])) < 1e-6);
  CHECK(at::allclose(moved.goal_pose.narrow(1, 2, 2).square().sum(-1), at::ones({8}, at::kDouble)));
  // Nothing else differs.
  CHECK(at::equal(moved.lanes, left.lanes));
  CHECK(at::equal(moved.ego_agent_future, left.ego_agent_future));
  CHECK(at::equal(moved.goal_pose[5], scene.goal_pose[5]));  // rejected, and already in its own frame
}

TEST_CASE(
    "diffusion_planner augmentation: an ego that drives backwards is left alone unless as in the original") {
  const OriginalNumbers golden;
  const FrameBatch scene = scene_of(golden, "aug.in.", at::kDouble);
  const ShiftDraws draws = draws_of(golden, at::kDouble);
  AugmentationOptions options = original();
  const at::Tensor state = shifted_state(scene, draws.uniform, options);
  const at::Tensor with = accepted_shifts(scene, state, draws.coin, options);
  options.shifted_reversing = false;
  const at::Tensor without = accepted_shifts(scene, state, draws.coin, options);
  CHECK(with[7].item<bool>());
  CHECK_FALSE(without[7].item<bool>());
  CHECK(at::equal(with.narrow(0, 0, 7), without.narrow(0, 0, 7)));
  const FrameBatch seen = augmented(options, scene, draws);
  CHECK(largest(seen.ego_agent_future[7] - scene.ego_agent_future[7]) < 1e-6);
}

TEST_CASE("diffusion_planner augmentation: what upstream's frames lack stays undefined") {
  const OriginalNumbers golden;
  FrameBatch scene = scene_of(golden, "aug.in.", at::kFloat);
  const FrameBatch whole = augmented({}, scene, draws_of(golden, at::kFloat));
  for (at::Tensor* missing : {&scene.ego_agent_past, &scene.static_objects, &scene.route_lanes,
                              &scene.polygons, &scene.line_strings, &scene.goal_pose}) {
    missing->reset();
  }
  const FrameBatch seen = augmented({}, scene, draws_of(golden, at::kFloat));
  CHECK_FALSE(seen.goal_pose.defined());
  CHECK_FALSE(seen.line_strings.defined());
  CHECK(at::equal(seen.ego_agent_future, whole.ego_agent_future));
}

TEST_CASE("diffusion_planner augmentation: the way back ends in its future") {
  const OriginalNumbers golden;
  const FrameBatch scene = scene_of(golden, "aug.in.", at::kFloat);
  CHECK(test::error_text<std::invalid_argument>([&] {
          rebuilt_future(scene.ego_agent_future, scene.ego_current_state, {.rebuilt = 80});
        }) == "diffusion_planner.augmentation.rebuilt = 80 with futures of 80 steps: allowed are 2 to 79");
  // From where the path begins it is led back onto itself.
  const at::Tensor t = at::arange(1, 81, at::kDouble) / 10;
  const at::Tensor straight = at::stack({8 * t, at::zeros_like(t), at::zeros_like(t)}, -1).unsqueeze(0);
  const at::Tensor state = at::tensor({0, 0, 1, 0, 8, 0, 0, 0, 0, 0}, at::kDouble).unsqueeze(0);
  CHECK(largest(rebuilt_future(straight, state, {}) - straight) < 1e-9);
}
