// The driving planner's loss of whole frames: against its pieces put together by hand, in every preset, with
// and without augmentation.
#include <ATen/ATen.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/diffusion_planner/objective_job.h"
#include "support/error_text.h"
#include "toolkit/families/diffusion_planner/objective.h"

using namespace dtk;
using namespace dtk::test;
using models::DiffusionPlanner;

namespace {

const std::vector<std::string> kPresets = {"H", "M", "UP"};

at::Generator generator(uint64_t seed, c10::Device device = at::kCPU) {
  return policies::make_generator(device, seed);
}

/// With an augmentation for every preset, and every term that it has inputs for.
PlannerObjectiveOptions all_terms(const models::DiffusionPlannerOptions& model) {
  PlannerObjectiveOptions options = planner_objective_of(model);
  options.augmentation.emplace().probability = 1;
  options.loss.collision = 0.5;
  if (model.upstream()) options.ego_shape = {2.8, 4.6, 1.9};
  return options;
}

/// One forward pass by hand.
at::Tensor composed(const DiffusionPlanner& planner, PlannerBatch batch,
                    const PlannerObjectiveOptions& options, const at::Generator& noise, bool training) {
  const bool upstream = planner.options().upstream();
  if (upstream) batch.ego_shape = at::tensor({2.8F, 4.6F, 1.9F}).repeat({batch.lanes.size(0), 1});
  headings_to_cos_sin(batch);
  if (training) {
    const PlannerShiftDraws shift = draw_planner_shift(batch, *options.augmentation, noise);
    batch = PlannerAugmentation(*options.augmentation, 80, at::kCPU).apply(batch, shift);
  }
  const PlannerFutures futures = planner_futures(batch.ego_agent_future, batch.neighbor_agents_future);
  PlannerNormalizer(options.scales, at::kCPU).normalize(batch);
  PlannerSupervision given;
  given.targets = planner_targets({batch.ego_current_state, batch.neighbor_agents_past, futures.ego,
                                   futures.neighbors, futures.neighbor_mask},
                                  options.process);
  given.ego_current_state = batch.ego_current_state;
  given.neighbor_agents_past = batch.neighbor_agents_past;
  given.neighbors_future = futures.neighbors;
  given.absent = futures.neighbor_mask;
  given.line_strings = batch.line_strings;
  given.ego_shape = batch.ego_shape;
  given.turn_indicators = batch.turn_indicators;
  const PlannerSample sample = planner_sample(
      given.targets, draw_planner_noise(given.targets, options.process, noise), options.process);
  const models::DrivingScene scene = {batch.neighbor_agents_past,
                                      batch.static_objects,
                                      batch.lanes,
                                      batch.lanes_speed_limit,
                                      batch.lanes_has_speed_limit,
                                      batch.route_lanes,
                                      batch.route_lanes_speed_limit,
                                      batch.route_lanes_has_speed_limit,
                                      batch.polygons,
                                      batch.line_strings,
                                      batch.ego_agent_past,
                                      batch.goal_pose,
                                      batch.turn_indicators,
                                      batch.ego_shape};
  const models::DrivingContext context = planner.encode(scene, training);
  const at::Tensor predicted = planner.denoise(sample.x, sample.t, context, training);
  at::Tensor logits;
  if (!upstream) logits = planner.turn_indicator(given.targets.select(1, 0), context.encoding);
  return planner_losses(predicted, logits, given, options.process, options.loss).total(options.loss);
}

std::vector<at::Tensor> gradients(const at::Tensor& loss, const DiffusionPlanner& planner) {
  std::vector<at::Tensor> all;
  for (const auto& [name, parameter] : planner.parameters()) all.push_back(parameter);
  return torch::autograd::grad({loss}, all);
}

double value(const at::Tensor& loss) {
  return loss.item<double>();
}

}  // namespace

TEST_CASE("planner_objective: the loss and its gradients are those of the pieces put together by hand") {
  for (const std::string& preset : kPresets) {
    for (const bool training : {true, false}) {
      INFO(preset << (training ? " in training" : " in validation"));
      const DiffusionPlanner planner = frame_planner(preset);
      const PlannerObjectiveOptions options = all_terms(planner.options());
      const PlannerObjective objective(planner.options(), options, at::kCPU);
      const at::Tensor loss = objective.loss(planner, golden_frames(preset), generator(3), training);
      const at::Tensor wanted = composed(planner, golden_frames(preset), options, generator(3), training);
      CHECK(loss.dim() == 0);
      CHECK(value(loss) == Approx(value(wanted)).epsilon(1e-6));
      const std::vector<at::Tensor> slopes = gradients(loss, planner), same = gradients(wanted, planner);
      for (size_t i = 0; i < same.size(); ++i) {
        INFO(planner.parameters()[i].first);
        CHECK(slopes[i].isfinite().all().item<bool>());
        const double size = same[i].norm().item<double>();
        CHECK((slopes[i] - same[i]).norm().item<double>() <= 1e-5 * size + 1e-8);
      }
    }
  }
}

TEST_CASE("planner_objective: every preset learns on every device, all of its parameters, finitely",
          "[device]") {
  for (const std::string& preset : kPresets) {
    INFO(preset);
    const DiffusionPlanner planner = frame_planner(preset, test_device());
    const PlannerObjective objective(planner.options(), all_terms(planner.options()), test_device());
    const at::Tensor loss = objective.loss(planner, random_frames(planner.options(), 2, test_device()),
                                           generator(1, test_device()), /*training=*/true);
    CHECK(loss.scalar_type() == at::kFloat);
    CHECK_VALUES(loss.isfinite().item<bool>());
    for (const at::Tensor& slope : gradients(loss, planner)) {
      CHECK(slope.defined());
      CHECK_VALUES(slope.isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("planner_objective: the generator alone decides on the loss") {
  for (const std::string& preset : kPresets) {
    INFO(preset);
    const DiffusionPlanner planner = frame_planner(preset);
    const PlannerObjective objective(planner.options(), all_terms(planner.options()), at::kCPU);
    const auto loss = [&](uint64_t seed) {
      return value(objective.loss(planner, golden_frames(preset), generator(seed), true));
    };
    const double first = loss(1);
    at::manual_seed(99);
    CHECK(loss(1) == first);
    CHECK(loss(2) != first);
  }
}

TEST_CASE("planner_objective: the augmentation acts in training only") {
  const DiffusionPlanner planner = frame_planner("H");
  PlannerObjectiveOptions options = all_terms(planner.options());
  const PlannerObjective augmented(planner.options(), options, at::kCPU);
  options.augmentation.reset();
  const PlannerObjective plain(planner.options(), options, at::kCPU);
  const auto loss = [&](const PlannerObjective& objective, bool training) {
    return value(objective.loss(planner, golden_frames("H"), generator(4), training));
  };
  CHECK(loss(augmented, false) == loss(plain, false));
  CHECK(loss(plain, true) == loss(plain, false));  // there is no dropout
  const PlannerBatch frames = golden_frames("H");
  PlannerObjective::Draws draws = augmented.draw(frames, generator(4), true);
  CHECK_FALSE(augmented.draw(frames, generator(4), false).shift.coin.defined());
  const auto of_draws = [&](const PlannerObjective& objective) {
    return value(objective.losses(planner, frames, draws, true).total(options.loss));
  };
  CHECK(of_draws(augmented) != of_draws(plain));
}

TEST_CASE("planner_objective: terms of weight 0 are not there, and their sum is what loss() gives") {
  const DiffusionPlanner planner = frame_planner("H");
  PlannerObjectiveOptions options = all_terms(planner.options());
  const auto losses = [&] {
    const PlannerObjective objective(planner.options(), options, at::kCPU);
    const PlannerBatch frames = golden_frames("H");
    return objective.losses(planner, frames, objective.draw(frames, generator(5), true), true);
  };
  const PlannerLosses all = losses();
  const PlannerObjective objective(planner.options(), options, at::kCPU);
  CHECK(value(all.total(options.loss)) ==
        value(objective.loss(planner, golden_frames("H"), generator(5), true)));
  CHECK(all.turn_indicator.defined());
  CHECK(all.road_border.defined());
  CHECK(all.collision.defined());
  options.loss.turn_indicator = options.loss.road_border = options.loss.collision = 0;
  const PlannerLosses some = losses();
  CHECK_FALSE(some.turn_indicator.defined());
  CHECK_FALSE(some.road_border.defined());
  CHECK_FALSE(some.collision.defined());
  CHECK(value(some.ego) == value(all.ego));
  CHECK(value(some.neighbor) == value(all.neighbor));
}

TEST_CASE("planner_objective: of the frames only what the model and the terms read outlives their reading") {
  const auto alive_in_model = [](double collision) {
    DiffusionPlanner planner = frame_planner("H");
    PlannerObjectiveOptions options = all_terms(planner.options());
    options.loss.collision = collision;
    const PlannerObjective objective(planner.options(), options, at::kCPU);
    PlannerBatch frames = golden_frames("H");
    using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
    std::map<std::string, Weak> storages;
    PlannerBatch::fields(frames, [&](const char* key, const at::Tensor& tensor) {
      storages.emplace(key, Weak(tensor.storage().getWeakStorageImpl()));
    });
    std::vector<std::string> alive;
    planner.seam.run = [&](std::string_view path, const models::SubtreeFn& fn, models::Tensors&& in) {
      if (path == planner.paths().front()) {
        for (const auto& [key, storage] : storages) {
          if (!storage.expired()) alive.push_back(key);
        }
      }
      return fn(std::move(in));
    };
    objective.loss(planner, std::move(frames), generator(1), /*training=*/true);
    return alive;
  };
  // As they are in the file, nothing else is what the model reads.
  const std::vector<std::string> unchanged = {"ego_shape", "lanes_has_speed_limit",
                                              "route_lanes_has_speed_limit", "turn_indicators"};
  CHECK(alive_in_model(0) == unchanged);
  CHECK(alive_in_model(1) == unchanged);
}

TEST_CASE("planner_objective: what cannot be learnt is refused before a step") {
  const models::DiffusionPlannerOptions h = frame_planner_options("H"), up = frame_planner_options("UP");
  const auto refusal = [](const models::DiffusionPlannerOptions& model,
                          const PlannerObjectiveOptions& options) {
    return error_text<std::invalid_argument>([&] { PlannerObjective(model, options, at::kCPU); });
  };
  PlannerObjectiveOptions options = planner_objective_of(up);
  options.process.prefix = true;
  CHECK(refusal(up, options) ==
        "planner.process.prefix = true: planner.preset = \"UP\" takes one time a sample and no prefix; set "
        "it to "
        "false");
  options = planner_objective_of(h);
  options.process.prefix = false;
  CHECK(refusal(h, options) ==
        "planner.process.prefix = false: planner.preset = \"H\" takes a time for each pose; set it to true");
  options = planner_objective_of(h);
  options.process.prediction = "score";
  CHECK(refusal(h, options).starts_with("planner.process.prediction = \"score\": "));
  options = planner_objective_of(h);
  options.scales.erase("polygons");
  CHECK(refusal(h, options) ==
        "the driving planner's objective: polygons has no scale; planner.preset = \"H\" needs one of 3; take "
        "planner_scales(), or a file of this model's (read_planner_normalization())");
  options = planner_objective_of(up);
  options.scales = planner_scales(33);
  CHECK(
      refusal(up, options) ==
      "the driving planner's objective: lanes has a scale of 33 features; planner.preset = \"UP\" needs one "
      "of 12; take planner_scales(), or a file of this model's (read_planner_normalization())");
  options = planner_objective_of(up);
  options.augmentation.emplace();
  CHECK(
      refusal(up, options) ==
      "the driving planner's objective: frames of planner.preset = \"UP\" do not tell the ego's shape, which "
      "the augmentation needs; give one (ego_shape: wheelbase, length, width in m), or leave the "
      "augmentation out");
  options = planner_objective_of(h);
  options.ego_shape = {2.8, 4.6, 1.9};
  CHECK(
      refusal(h, options) ==
      "the driving planner's objective: frames of planner.preset = \"H\" have an ego_shape of their own; do "
      "not give another one");
}

TEST_CASE("planner_objective: frames of another size, or without an array, are told by key") {
  const DiffusionPlanner planner = frame_planner("H");
  const PlannerObjective objective(planner.options(), planner_objective_of(planner.options()), at::kCPU);
  const auto refusal = [&](const std::function<void(PlannerBatch&)>& change) {
    PlannerBatch frames = golden_frames("H");
    change(frames);
    return error_text<std::invalid_argument>([&] { objective.loss(planner, frames, generator(1), true); });
  };
  const std::string advice =
      "], with the N >= 1 of ego_current_state (3); read the frames with planner_sizes() and "
      "planner_layout() of the model's options";
  const std::string where = "a batch of the driving planner's frames: ";
  CHECK(refusal([](PlannerBatch& frames) { frames.lanes = frames.lanes.narrow(1, 0, 5); }) ==
        where + "lanes is [3, 5, 20, 33]; planner.preset = \"H\" reads the shape [N, 6, 20, 33" + advice);
  CHECK(refusal([](PlannerBatch& frames) { frames.ego_agent_future.reset(); }) ==
        where + "ego_agent_future is undefined; planner.preset = \"H\" reads the shape [N, 80, 3" + advice);
  CHECK(refusal([](PlannerBatch& frames) { frames.goal_pose = frames.goal_pose.narrow(0, 0, 2); }) ==
        where + "goal_pose is [2, 3]; planner.preset = \"H\" reads the shape [N, 3" + advice);
}
