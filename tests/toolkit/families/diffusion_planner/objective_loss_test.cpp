// The driving model's loss of whole frames: against its pieces put together by hand, in every preset, with
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
using namespace dtk::diffusion_planner;
using namespace dtk::test;
using models::DiffusionPlanner;

namespace {

const std::vector<std::string> kPresets = {"H", "M", "UP"};

at::Generator generator(uint64_t seed, c10::Device device = at::kCPU) {
  return policies::make_generator(device, seed);
}

/// Every term that the preset has inputs for; with its augmentation, every sample is shifted.
TrajectoryObjectiveOptions all_terms(const models::DiffusionPlannerOptions& model) {
  TrajectoryObjectiveOptions options = objective_options_of(model);
  if (options.augmentation) options.augmentation->probability = 1;
  options.loss.collision = 0.5;
  return options;
}

/// One forward pass by hand.
at::Tensor composed(const DiffusionPlanner& model, FrameBatch batch,
                    const TrajectoryObjectiveOptions& options, const at::Generator& noise, bool training) {
  headings_to_cos_sin(batch);
  if (training && options.augmentation) {
    const ShiftDraws shift = draw_shift(batch, *options.augmentation, noise);
    batch = Augmentation(*options.augmentation, 80, at::kCPU).apply(batch, shift);
  }
  const Futures futures = futures_of(batch.ego_agent_future, batch.neighbor_agents_future);
  Normalizer(options.scales, at::kCPU).normalize(batch);
  Supervision given;
  given.targets = targets_of({batch.ego_current_state, batch.neighbor_agents_past, futures.ego,
                              futures.neighbors, futures.neighbor_mask},
                             options.process);
  given.ego_current_state = batch.ego_current_state;
  given.neighbor_agents_past = batch.neighbor_agents_past;
  given.neighbors_future = futures.neighbors;
  given.absent = futures.neighbor_mask;
  given.line_strings = batch.line_strings;
  given.ego_shape = batch.ego_shape;
  given.turn_indicators = batch.turn_indicators;
  const NoisedSample sample =
      noised_sample(given.targets, draw_noise(given.targets, options.process, noise), options.process);
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
  const models::DrivingContext context = model.encode(scene, training);
  const at::Tensor predicted = model.denoise(sample.x, sample.t, context, training);
  at::Tensor logits;
  if (!model.options().upstream())
    logits = model.turn_indicator(given.targets.select(1, 0), context.encoding);
  return losses_of(predicted, logits, given, options.process, options.loss).total(options.loss);
}

std::vector<at::Tensor> gradients(const at::Tensor& loss, const DiffusionPlanner& model) {
  std::vector<at::Tensor> all;
  for (const auto& [name, parameter] : model.parameters()) all.push_back(parameter);
  return torch::autograd::grad({loss}, all);
}

double value(const at::Tensor& loss) {
  return loss.item<double>();
}

}  // namespace

TEST_CASE(
    "diffusion_planner objective: the loss and its gradients are those of the pieces put together by hand") {
  for (const std::string& preset : kPresets) {
    for (const bool training : {true, false}) {
      INFO(preset << (training ? " in training" : " in validation"));
      const DiffusionPlanner model = frame_diffusion_planner(preset);
      const TrajectoryObjectiveOptions options = all_terms(model.options());
      const TrajectoryObjective objective(model.options(), options, at::kCPU);
      const at::Tensor loss = objective.loss(model, golden_frames(preset), generator(3), training);
      const at::Tensor wanted = composed(model, golden_frames(preset), options, generator(3), training);
      CHECK(loss.dim() == 0);
      CHECK(value(loss) == Approx(value(wanted)).epsilon(1e-6));
      const std::vector<at::Tensor> slopes = gradients(loss, model), same = gradients(wanted, model);
      for (size_t i = 0; i < same.size(); ++i) {
        INFO(model.parameters()[i].first);
        CHECK(slopes[i].isfinite().all().item<bool>());
        const double size = same[i].norm().item<double>();
        CHECK((slopes[i] - same[i]).norm().item<double>() <= 1e-5 * size + 1e-8);
      }
    }
  }
}

TEST_CASE("diffusion_planner objective: every preset learns on every device, all of its parameters, finitely",
          "[device]") {
  for (const std::string& preset : kPresets) {
    INFO(preset);
    const DiffusionPlanner model = frame_diffusion_planner(preset, test_device());
    const TrajectoryObjective objective(model.options(), all_terms(model.options()), test_device());
    const at::Tensor loss = objective.loss(model, random_frames(model.options(), 2, test_device()),
                                           generator(1, test_device()), /*training=*/true);
    CHECK(loss.scalar_type() == at::kFloat);
    CHECK_VALUES(loss.isfinite().item<bool>());
    for (const at::Tensor& slope : gradients(loss, model)) {
      CHECK(slope.defined());
      CHECK_VALUES(slope.isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("diffusion_planner objective: the generator alone decides on the loss") {
  for (const std::string& preset : kPresets) {
    INFO(preset);
    const DiffusionPlanner model = frame_diffusion_planner(preset);
    const TrajectoryObjective objective(model.options(), all_terms(model.options()), at::kCPU);
    const auto loss = [&](uint64_t seed) {
      return value(objective.loss(model, golden_frames(preset), generator(seed), true));
    };
    const double first = loss(1);
    at::manual_seed(99);
    CHECK(loss(1) == first);
    CHECK(loss(2) != first);
  }
}

TEST_CASE("diffusion_planner objective: the augmentation acts in training only") {
  const DiffusionPlanner model = frame_diffusion_planner("H");
  TrajectoryObjectiveOptions options = all_terms(model.options());
  const TrajectoryObjective augmented(model.options(), options, at::kCPU);
  options.augmentation.reset();
  const TrajectoryObjective plain(model.options(), options, at::kCPU);
  const auto loss = [&](const TrajectoryObjective& objective, bool training) {
    return value(objective.loss(model, golden_frames("H"), generator(4), training));
  };
  CHECK(loss(augmented, false) == loss(plain, false));
  CHECK(loss(plain, true) == loss(plain, false));  // there is no dropout
  const FrameBatch frames = golden_frames("H");
  TrajectoryObjective::Draws draws = augmented.draw(frames, generator(4), true);
  CHECK_FALSE(augmented.draw(frames, generator(4), false).shift.coin.defined());
  const auto of_draws = [&](const TrajectoryObjective& objective) {
    return value(objective.losses(model, frames, draws, true).total(options.loss));
  };
  CHECK(of_draws(augmented) != of_draws(plain));
}

TEST_CASE(
    "diffusion_planner objective: terms of weight 0 are not there, and their sum is what loss() gives") {
  const DiffusionPlanner model = frame_diffusion_planner("H");
  TrajectoryObjectiveOptions options = all_terms(model.options());
  const auto losses = [&] {
    const TrajectoryObjective objective(model.options(), options, at::kCPU);
    const FrameBatch frames = golden_frames("H");
    return objective.losses(model, frames, objective.draw(frames, generator(5), true), true);
  };
  const Losses all = losses();
  const TrajectoryObjective objective(model.options(), options, at::kCPU);
  CHECK(value(all.total(options.loss)) ==
        value(objective.loss(model, golden_frames("H"), generator(5), true)));
  CHECK(all.turn_indicator.defined());
  CHECK(all.road_border.defined());
  CHECK(all.collision.defined());
  options.loss.turn_indicator = options.loss.road_border = options.loss.collision = 0;
  const Losses some = losses();
  CHECK_FALSE(some.turn_indicator.defined());
  CHECK_FALSE(some.road_border.defined());
  CHECK_FALSE(some.collision.defined());
  CHECK(value(some.ego) == value(all.ego));
  CHECK(value(some.neighbor) == value(all.neighbor));
}

TEST_CASE(
    "diffusion_planner objective: of the frames only what the model and the terms read outlives their "
    "reading") {
  const auto alive_in_model = [](double collision) {
    DiffusionPlanner model = frame_diffusion_planner("H");
    TrajectoryObjectiveOptions options = all_terms(model.options());
    options.loss.collision = collision;
    const TrajectoryObjective objective(model.options(), options, at::kCPU);
    FrameBatch frames = golden_frames("H");
    using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
    std::map<std::string, Weak> storages;
    FrameBatch::fields(frames, [&](const char* key, const at::Tensor& tensor) {
      storages.emplace(key, Weak(tensor.storage().getWeakStorageImpl()));
    });
    std::vector<std::string> alive;
    model.seam.run = [&](std::string_view path, const models::ModuleFn& fn, models::Tensors&& in) {
      if (path == model.paths().front()) {
        for (const auto& [key, storage] : storages) {
          if (!storage.expired()) alive.push_back(key);
        }
      }
      return fn(std::move(in));
    };
    objective.loss(model, std::move(frames), generator(1), /*training=*/true);
    return alive;
  };
  // As they are in the file, nothing else is what the model reads.
  const std::vector<std::string> unchanged = {"ego_shape", "lanes_has_speed_limit",
                                              "route_lanes_has_speed_limit", "turn_indicators"};
  CHECK(alive_in_model(0) == unchanged);
  CHECK(alive_in_model(1) == unchanged);
}

TEST_CASE("diffusion_planner objective: what cannot be learnt is refused before a step") {
  const models::DiffusionPlannerOptions h = frame_diffusion_planner_options("H"),
                                        up = frame_diffusion_planner_options("UP");
  const auto refusal = [](const models::DiffusionPlannerOptions& model,
                          const TrajectoryObjectiveOptions& options) {
    return error_text<std::invalid_argument>([&] { TrajectoryObjective(model, options, at::kCPU); });
  };
  TrajectoryObjectiveOptions options = objective_options_of(up);
  options.process.prefix = true;
  CHECK(refusal(up, options) ==
        "diffusion_planner.process.prefix = true: diffusion_planner.preset = \"UP\" takes one time a sample "
        "and no prefix; set "
        "it to "
        "false");
  options = objective_options_of(h);
  options.process.prefix = false;
  CHECK(refusal(h, options) ==
        "diffusion_planner.process.prefix = false: diffusion_planner.preset = \"H\" takes a time for each "
        "pose; set it to true");
  options = objective_options_of(h);
  options.scales.erase("polygons");
  CHECK(refusal(h, options) ==
        "the driving model's objective: polygons has no scale; diffusion_planner.preset = \"H\" needs one "
        "of 3; take "
        "published_scales(), or a file of this model's (read_normalization())");
  options = objective_options_of(up);
  options.scales = published_scales(33);
  CHECK(refusal(up, options) ==
        "the driving model's objective: lanes has a scale of 33 features; diffusion_planner.preset = "
        "\"UP\" needs one "
        "of 12; take published_scales(), or a file of this model's (read_normalization())");
  options = objective_options_of(up);
  options.augmentation.emplace();
  CHECK(refusal(up, options) ==
        "the driving model's objective: frames of diffusion_planner.preset = \"UP\" do not tell the ego's "
        "shape, which the augmentation needs; leave the augmentation out");
}

TEST_CASE("diffusion_planner objective: frames of another size, or without an array, are told by key") {
  const DiffusionPlanner model = frame_diffusion_planner("H");
  const TrajectoryObjective objective(model.options(), objective_options_of(model.options()), at::kCPU);
  const auto refusal = [&](const std::function<void(FrameBatch&)>& change) {
    FrameBatch frames = golden_frames("H");
    change(frames);
    return error_text<std::invalid_argument>([&] { objective.loss(model, frames, generator(1), true); });
  };
  const std::string advice =
      "], with the N >= 1 of ego_current_state (3); read the frames with sizes_of() and "
      "layout_of() of the model's options";
  const std::string where = "a batch of the driving model's frames: ";
  CHECK(refusal([](FrameBatch& frames) { frames.lanes = frames.lanes.narrow(1, 0, 5); }) ==
        where + "lanes is [3, 5, 20, 33]; diffusion_planner.preset = \"H\" reads the shape [N, 6, 20, 33" +
            advice);
  CHECK(refusal([](FrameBatch& frames) { frames.ego_agent_future.reset(); }) ==
        where + "ego_agent_future is undefined; diffusion_planner.preset = \"H\" reads the shape [N, 80, 3" +
            advice);
  CHECK(refusal([](FrameBatch& frames) { frames.goal_pose = frames.goal_pose.narrow(0, 0, 2); }) ==
        where + "goal_pose is [2, 3]; diffusion_planner.preset = \"H\" reads the shape [N, 3" + advice);
}
