#include "toolkit/families/diffusion_planner/objective.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/enum_text.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "toolkit/families/diffusion_planner/layout.h"

namespace dtk::diffusion_planner {
namespace {

using models::DiffusionPlannerOptions;

std::vector<NpzArray> arrays_of(const DiffusionPlannerOptions& model) {
  return frame_arrays(layout_of(model), sizes_of(model));
}

// The network has one time a sample or one for each pose: the noise must be of the same kind.
void check_process(const DiffusionPlannerOptions& model, const ProcessOptions& process) {
  if (process.prefix != model.upstream()) return;
  throw std::invalid_argument(
      c10::str("diffusion_planner.process.prefix = ", process.prefix ? "true" : "false",
               ": diffusion_planner.preset = \"", policies::text_of(model.preset), "\" ",
               model.upstream() ? "takes one time a sample and no prefix" : "takes a time for each pose",
               "; set it to ", model.upstream() ? "false" : "true"));
}

void check_scales(const DiffusionPlannerOptions& model, const std::map<std::string, FeatureScale>& scales) {
  const auto known = published_scales(sizes_of(model).lane_features);
  for (const NpzArray& array : arrays_of(model)) {
    const auto published = known.find(array.key);
    if (published == known.end()) continue;
    const size_t wanted = published->second.mean.size();
    const auto given = scales.find(array.key);
    if (given != scales.end() && given->second.mean.size() == wanted) continue;
    throw std::invalid_argument(
        c10::str("the driving model's objective: ", array.key, " has ",
                 given == scales.end() ? std::string("no scale")
                                       : c10::str("a scale of ", given->second.mean.size(), " features"),
                 "; diffusion_planner.preset = \"", policies::text_of(model.preset), "\" needs one of ",
                 wanted, "; take published_scales(), or a file ", "of this model's (read_normalization())"));
  }
}

void check_shape(const DiffusionPlannerOptions& model, const TrajectoryObjectiveOptions& options) {
  if (!model.upstream() || !options.augmentation) return;
  throw std::invalid_argument(
      c10::str("the driving model's objective: frames of diffusion_planner.preset = \"",
               policies::text_of(model.preset),
               "\" do not tell the ego's shape, which the augmentation needs; leave the augmentation out"));
}

Normalizer owned_normalizer(const std::map<std::string, FeatureScale>& scales, c10::Device device) {
  const policies::OwnerScope owner(policies::Category::parameters, "normalization");
  return {scales, device};
}

// (B, P, 1 + T, 4) of one number: draw_noise() looks at type and sizes only.
at::Tensor like_targets(const FrameBatch& batch) {
  const at::Tensor& future = batch.neighbor_agents_future;
  const at::Tensor one = at::empty({1}, batch.ego_current_state.options());
  return one.expand({future.size(0), 1 + future.size(1), 1 + future.size(2), 4});
}

}  // namespace

models::DrivingScene driving_scene(const FrameBatch& normalized) {
  models::DrivingScene scene;
  models::DrivingScene::fields(scene, [&](std::string_view key, at::Tensor& read) {
    FrameBatch::fields(normalized, [&](std::string_view name, const at::Tensor& tensor) {
      if (name == key) read = tensor;
    });
  });
  return scene;
}

Outcome outcome_of(const FrameBatch& batch) {
  Futures futures = futures_of(batch.ego_agent_future, batch.neighbor_agents_future);
  const at::Tensor& past = batch.neighbor_agents_past;
  Outcome outcome;
  outcome.neighbors_now = past.narrow(1, 0, futures.neighbors.size(1)).select(2, past.size(2) - 1);
  outcome.ego_future = std::move(futures.ego);
  outcome.neighbors_future = std::move(futures.neighbors);
  outcome.absent = std::move(futures.neighbor_mask);
  outcome.turn_indicators = batch.turn_indicators;
  outcome.ego_shape = batch.ego_shape;
  outcome.line_strings = batch.line_strings;
  return outcome;
}

TrajectoryObjective::TrajectoryObjective(const DiffusionPlannerOptions& model,
                                         const TrajectoryObjectiveOptions& options, c10::Device device)
    : model_(models::resolved(model)),
      options_(options),
      arrays_(arrays_of(model_)),
      normalizer_(owned_normalizer(options.scales, device)) {
  check_process(model_, options.process);
  check_scales(model_, options.scales);
  check_shape(model_, options);
  if (options.augmentation) augmentation_.emplace(*options.augmentation, *model_.future_len, device);
}

at::Tensor TrajectoryObjective::loss(const models::DiffusionPlanner& model, FrameBatch batch,
                                     const at::Generator& generator, bool training) const {
  Draws draws = draw(batch, generator, training);
  return losses(model, std::move(batch), std::move(draws), training).total(options_.loss);
}

TrajectoryObjective::Draws TrajectoryObjective::draw(const FrameBatch& batch, const at::Generator& generator,
                                                     bool training) const {
  check(batch, /*with_futures=*/true);
  Draws draws;
  if (augments(training)) draws.shift = draw_shift(batch, *options_.augmentation, generator);
  draws.noise = draw_noise(like_targets(batch), options_.process, generator);
  return draws;
}

Losses TrajectoryObjective::losses(const models::DiffusionPlanner& model, FrameBatch batch, Draws draws,
                                   bool training) const {
  check(batch, /*with_futures=*/true);
  headings_to_cos_sin(batch);
  if (augments(training)) batch = augmentation_->apply(std::move(batch), draws.shift);
  draws.shift = {};
  Futures futures = futures_of(batch.ego_agent_future, batch.neighbor_agents_future);
  batch.ego_agent_future.reset();
  batch.neighbor_agents_future.reset();
  normalizer_.normalize(batch);
  Supervision given = supervision(batch, futures);
  futures = {};
  models::DrivingScene scene = driving_scene(batch);
  batch = {};
  NoisedSample sample = noised_sample(given.targets, draws.noise, options_.process);
  draws.noise = {};
  sample.prefix.reset();

  const models::DrivingContext context = model.encode(scene, training);
  scene = {};
  const at::Tensor predicted = model.denoise(std::move(sample.x), std::move(sample.t), context, training);
  at::Tensor logits;
  if (!model_.upstream() && options_.loss.turn_indicator > 0) {
    logits = model.turn_indicator(given.targets.select(1, 0), context.encoding);
  }
  return losses_of(predicted, logits, given, options_.process, options_.loss);
}

TrajectoryObjective::Prediction TrajectoryObjective::predict(const models::DiffusionPlanner& model,
                                                             FrameBatch batch, at::Tensor initial) const {
  const at::NoGradGuard no_grad;
  check(batch, /*with_futures=*/false);
  batch.ego_agent_future.reset();
  batch.neighbor_agents_future.reset();
  headings_to_cos_sin(batch);
  normalizer_.normalize(batch);
  TruePaths truth;
  truth.ego_current_state = batch.ego_current_state;
  truth.neighbor_agents_past = batch.neighbor_agents_past;
  // Of the futures their number counts here.
  truth.neighbors_future = batch.neighbor_agents_past.narrow(1, 0, *model_.predicted_neighbor_num);
  const at::Tensor current = current_states(truth);
  truth = {};
  models::DrivingScene scene = driving_scene(batch);
  batch = {};
  const models::DrivingContext context = model.encode(scene, /*training=*/false);
  scene = {};
  if (!initial.defined()) {
    initial = at::zeros({current.size(0), current.size(1), 1 + *model_.future_len, 4}, current.options());
  }
  const TrajectoryNetwork network = [&](at::Tensor x, at::Tensor t) {
    return model.denoise(std::move(x), std::move(t), context, /*training=*/false);
  };
  const at::Tensor drawn =
      solve_trajectories(network, current, std::move(initial), options_.process, options_.solver);
  Prediction prediction;
  prediction.trajectories = poses_of(drawn, options_.process);
  if (!model_.upstream()) {
    prediction.logits = model.turn_indicator(drawn.select(1, 0), context.encoding).to(drawn.scalar_type());
  }
  return prediction;
}

void TrajectoryObjective::check(const FrameBatch& batch, bool with_futures) const {
  const at::Tensor& state = batch.ego_current_state;
  const int64_t count = state.defined() && state.dim() > 0 ? state.size(0) : 0;
  FrameBatch::fields(batch, [&](std::string_view key, const at::Tensor& tensor) {
    const auto array =
        std::find_if(arrays_.begin(), arrays_.end(), [&](const NpzArray& known) { return known.key == key; });
    if (array == arrays_.end() || (!with_futures && key.ends_with("_future"))) return;
    std::vector<int64_t> wanted = {count};
    wanted.insert(wanted.end(), array->shape.begin(), array->shape.end());
    if (count > 0 && tensor.defined() && tensor.sizes() == wanted) return;
    throw std::invalid_argument(
        c10::str("a batch of the driving model's frames: ", key, " is ",
                 tensor.defined() ? c10::str(tensor.sizes()) : "undefined", "; diffusion_planner.preset = \"",
                 policies::text_of(model_.preset), "\" reads the shape [N, ", c10::Join(", ", array->shape),
                 "], with the N >= 1 of ego_current_state (", count,
                 "); read the frames with sizes_of() and layout_of() of the model's options"));
  });
}

// Only what some term reads: the rest is let go before the model runs.
Supervision TrajectoryObjective::supervision(const FrameBatch& normalized, const Futures& futures) const {
  const LossOptions& loss = options_.loss;
  const at::Tensor& past = normalized.neighbor_agents_past;
  Supervision given;
  given.targets =
      targets_of({normalized.ego_current_state, past, futures.ego, futures.neighbors, futures.neighbor_mask},
                 options_.process);
  given.ego_current_state = normalized.ego_current_state;
  given.absent = futures.neighbor_mask;
  given.turn_indicators = normalized.turn_indicators;
  given.ego_shape = normalized.ego_shape;
  if (loss.road_border > 0) given.line_strings = normalized.line_strings;
  if (loss.collision > 0) {
    given.neighbor_agents_past = past.narrow(2, past.size(2) - 1, 1).clone();
    given.neighbors_future = futures.neighbors;
  }
  return given;
}

}  // namespace dtk::diffusion_planner
