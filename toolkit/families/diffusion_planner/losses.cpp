#include "toolkit/families/diffusion_planner/losses.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "toolkit/families/diffusion_planner/inputs.h"
#include "toolkit/families/diffusion_planner/noise.h"
#include "toolkit/families/diffusion_planner/penalties.h"

namespace dtk::diffusion_planner {
namespace {

// Weights of the steps (T), or nothing where they are all 1.
at::Tensor time_weights(const LossOptions& options, int64_t steps, const at::TensorOptions& type) {
  const auto& weights = options.time_weights;
  if (std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 1.0; })) return {};
  at::Tensor all = at::empty({steps}, type);
  const int64_t quarter = steps / 4;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t begin = i * quarter;
    all.narrow(0, begin, i == 3 ? steps - begin : quarter).fill_(weights[static_cast<size_t>(i)]);
  }
  return all;
}

// Where ways (B, P, T, 2) lead to, with a gradient for the last `window` of them only.
at::Tensor windowed_sum(const at::Tensor& ways, int64_t window) {
  const int64_t steps = ways.size(2);
  const at::Tensor sum = running_sum(ways);
  if (window >= steps) return sum;
  const at::Tensor early = sum.narrow(2, 0, steps - window);
  const at::Tensor later = sum.narrow(2, window, steps - window) - (early - early.detach());
  return at::cat({sum.narrow(2, 0, window), later}, 2);
}

at::Tensor of_velocities(const at::Tensor& predicted, const at::Tensor& truth, const LossOptions& options) {
  const at::Tensor error = (predicted - truth).square().sum(-1);
  const at::Tensor reached = windowed_sum(predicted.narrow(3, 0, 2), options.integrated_window);
  const at::Tensor missed = reached - truth.narrow(3, 0, 2).cumsum(2);
  return at::add(error, missed.square().sum(-1), options.integrated);
}

at::Tensor of_poses(const at::Tensor& predicted, const at::Tensor& truth, const at::Tensor& speed,
                    const LossOptions& options) {
  // Each part of the error on its own: what is kept for backward keeps no others with it.
  const auto error = [&](int64_t channel) { return predicted.select(3, channel) - truth.select(3, channel); };
  const at::Tensor dx = error(0), dy = error(1);
  const at::Tensor cosine = truth.select(3, 2), sine = truth.select(3, 3);
  at::Tensor along = dx * cosine;
  along = along + dy * sine;
  const at::Tensor slower = (options.speed_weight * speed).abs().clamp_min(1).reciprocal();
  const at::Tensor share = (options.longitudinal * slower).view({-1, 1, 1});
  at::Tensor all = along.abs() * share;
  at::Tensor across = dy * cosine;
  across = across - dx * sine;
  all = at::add(all, across.abs(), options.lateral);
  const at::Tensor turn = predicted.narrow(3, 2, 2) - truth.narrow(3, 2, 2);
  return at::add(all, turn.square().sum(-1), options.heading);
}

at::Tensor turn_indicator_loss(const at::Tensor& logits, const at::Tensor& indicators, at::ScalarType type,
                               const LossOptions& options) {
  const TurnLabels labels = turn_labels(indicators);
  const at::Tensor each = at::cross_entropy_loss(logits.to(type), labels.label, {}, at::Reduction::None);
  const at::Tensor changed = labels.changed.to(type);
  return (each * (changed * (1 - options.unchanged_turn) + options.unchanged_turn)).mean();
}

}  // namespace

TurnLabels turn_labels(const at::Tensor& indicators) {
  const int64_t count = indicators.size(1);
  const at::Tensor last = indicators.select(1, count - 1).to(at::kLong);
  TurnLabels labels;
  labels.changed = last.ne(indicators.select(1, count - 2));
  labels.label = last.masked_fill(labels.changed.logical_not(), 4);
  return labels;
}

at::Tensor pose_errors(const at::Tensor& trajectories, const Supervision& supervision,
                       const ProcessOptions& process, const LossOptions& options) {
  const int64_t steps = supervision.targets.size(2) - 1;
  const at::Tensor predicted = trajectories.narrow(2, 1, steps),
                   truth = supervision.targets.narrow(2, 1, steps);
  if (options.squared_error) return (predicted - truth).square().sum(-1);
  at::Tensor errors = process.velocity
                          ? of_velocities(predicted, truth, options)
                          : of_poses(predicted, truth, supervision.ego_current_state.select(1, 4), options);
  const at::Tensor weights = time_weights(options, steps, errors.options().requires_grad(false));
  return weights.defined() ? errors * weights : errors;
}

Losses losses_of(const at::Tensor& trajectories, const at::Tensor& logits, const Supervision& supervision,
                 const ProcessOptions& process, const LossOptions& options) {
  const at::Tensor predicted = trajectories.to(supervision.targets.scalar_type());
  const int64_t actors = predicted.size(1);
  Losses losses;
  {
    const at::Tensor errors = pose_errors(predicted, supervision, process, options);
    const int64_t horizon = std::min(options.ego_horizon, errors.size(2));
    if (options.ego > 0) losses.ego = errors.select(1, 0).narrow(1, 0, horizon).mean();
    if (options.neighbor > 0) {
      const at::Tensor others = errors.narrow(1, 1, actors - 1).masked_fill(supervision.absent, 0);
      const at::Tensor count = supervision.absent.logical_not().sum().clamp_min(1);
      losses.neighbor = others.sum() / count;
    }
  }
  if (options.turn_indicator > 0 && logits.defined() && supervision.turn_indicators.defined()) {
    losses.turn_indicator =
        turn_indicator_loss(logits, supervision.turn_indicators, predicted.scalar_type(), options);
  }
  const bool border = options.road_border > 0 && supervision.line_strings.defined();
  if (!supervision.ego_shape.defined() || !(border || options.collision > 0)) return losses;
  const at::Tensor poses = poses_of(predicted.narrow(1, 0, 1), process).squeeze(1);
  if (border) {
    const at::Tensor lines = line_strings_in_metres(supervision.line_strings);
    losses.road_border = road_border_penalty(poses, supervision.ego_shape, lines, options).mean();
  }
  if (options.collision > 0) {
    const at::Tensor& past = supervision.neighbor_agents_past;
    const at::Tensor now = past.narrow(1, 0, actors - 1).select(2, past.size(2) - 1);
    const Traffic traffic = traffic_of(now, kUnitLength, supervision.neighbors_future, supervision.absent);
    losses.collision = collision_penalty(poses, supervision.ego_shape, traffic, options).mean();
  }
  return losses;
}

at::Tensor Losses::total(const LossOptions& options) const {
  at::Tensor sum;
  const auto add = [&](const at::Tensor& term, double weight) {
    if (term.defined()) sum = sum.defined() ? at::add(sum, term, weight) : term * weight;
  };
  add(ego, options.ego);
  add(neighbor, options.neighbor);
  add(turn_indicator, options.turn_indicator);
  add(road_border, options.road_border);
  add(collision, options.collision);
  if (!sum.defined()) throw std::invalid_argument("the driving model's loss: every term has weight 0");
  return sum;
}

}  // namespace dtk::diffusion_planner
