#include "toolkit/families/diffusion_planner/metrics.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "toolkit/families/diffusion_planner/losses.h"
#include "toolkit/families/diffusion_planner/penalties.h"

namespace dtk::diffusion_planner {

EgoMetrics ego_metrics(const at::Tensor& prediction, const Outcome& outcome, const LossOptions& loss) {
  const at::Tensor ego = prediction.select(1, 0), error = ego - outcome.ego_future;
  const at::Tensor square = error.square();
  const at::Tensor cosine = outcome.ego_future.select(2, 2), sine = outcome.ego_future.select(2, 3);
  const at::Tensor dx = error.select(2, 0), dy = error.select(2, 1);
  EgoMetrics metrics;
  metrics.simple_l2 = square.mean(-1);
  metrics.position_l2 = square.narrow(2, 0, 2).sum(-1);
  metrics.heading_l2 = square.narrow(2, 2, 2).sum(-1);
  metrics.lateral = (dy * cosine - dx * sine).abs();
  metrics.longitudinal = (dx * cosine + dy * sine).abs();
  metrics.cosine_similarity = 1 - (ego.narrow(2, 2, 2) * outcome.ego_future.narrow(2, 2, 2)).sum(-1);
  if (!outcome.ego_shape.defined()) return metrics;
  const Traffic traffic = traffic_of(outcome.neighbors_now, 1, outcome.neighbors_future, outcome.absent);
  metrics.neighbor_margin = collision_penalty(ego, outcome.ego_shape, traffic, loss);
  if (outcome.line_strings.defined()) {
    metrics.road_border = road_border_penalty(ego, outcome.ego_shape, outcome.line_strings, loss);
  }
  return metrics;
}

at::Tensor path_sums(const at::Tensor& prediction, const at::Tensor& logits, const Outcome& outcome,
                     const LossOptions& loss) {
  const at::NoGradGuard no_grad;
  const at::Tensor nothing = at::zeros({}, prediction.options().dtype(at::kDouble));
  std::vector<at::Tensor> sums;
  const auto sum = [&](const at::Tensor& values) {
    sums.push_back(values.defined() ? values.to(at::kDouble).sum() : nothing);
  };
  const EgoMetrics ego = ego_metrics(prediction, outcome, loss);
  EgoMetrics::fields(ego, [&](const char*, const at::Tensor& values) { sum(values); });
  const at::Tensor neighbors = prediction.narrow(1, 1, prediction.size(1) - 1);
  sum((neighbors - outcome.neighbors_future).square().masked_fill(outcome.absent.unsqueeze(-1), 0));
  sum(outcome.absent.logical_not());
  TurnLabels labels;
  at::Tensor correct, correct_change;
  if (logits.defined() && outcome.turn_indicators.defined()) {
    labels = turn_labels(outcome.turn_indicators);
    correct = logits.argmax(-1).eq(labels.label);
    correct_change = correct & labels.changed;
  }
  sum(correct);
  sum(correct_change);
  sum(labels.changed);
  const int64_t samples = prediction.size(0), ego_rows = samples * prediction.size(2);
  for (const int64_t count : {samples, ego_rows})
    sums.push_back(at::full({}, static_cast<double>(count), nothing.options()));
  return at::stack(sums);
}

PathScores path_scores(const std::vector<double>& sums) {
  PathScores scores;
  const double* next = sums.data();
  const double samples = sums.at(kPathSums - 2), ego_rows = sums.at(kPathSums - 1);
  const auto mean = [](double sum, double count) { return count > 0 ? sum / count : 0.0; };
  for (double* score : {&scores.ego_simple_l2, &scores.ego_position_l2, &scores.ego_heading_l2,
                        &scores.ego_lateral, &scores.ego_longitudinal, &scores.ego_cosine_similarity,
                        &scores.ego_neighbor_margin, &scores.ego_road_border}) {
    *score = mean(*next++, ego_rows);
  }
  scores.neighbor = mean(next[0], 4 * next[1]);
  scores.samples = static_cast<int64_t>(samples);
  scores.turn_changes = static_cast<int64_t>(next[4]);
  scores.turn_accuracy = mean(next[2], samples);
  scores.turn_change_accuracy = mean(next[3], next[4]);
  return scores;
}

}  // namespace dtk::diffusion_planner
