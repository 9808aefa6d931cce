// How far the driving model's predictions are from what happened. B batch, P actors (the ego first), T
// steps; all in metres and poses of x, y, cos, sin.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "toolkit/families/diffusion_planner/options.h"

namespace dtk::diffusion_planner {

/// What happened. Those marked * are undefined with upstream's data, and what needs them is not measured
/// then.
struct Outcome {
  at::Tensor ego_future;        // (B, T, 4)
  at::Tensor neighbors_future;  // (B, P-1, T, 4)
  at::Tensor absent;            // (B, P-1, T), bool
  at::Tensor turn_indicators;   // * (B, V)
  at::Tensor ego_shape;         // * (B, 3)
  at::Tensor line_strings;      // * (B, M, L, 4); rows of zeros are absent
  at::Tensor neighbors_now;     // (B, P-1, 11)
};

/// Of the ego, each (B, T); the penalties are undefined where the outcome has not what they need.
struct EgoMetrics {
  at::Tensor simple_l2;    // mean squared error of the four channels
  at::Tensor position_l2;  // squared distance
  at::Tensor heading_l2;   // squared error of cos and sin
  at::Tensor lateral, longitudinal;
  at::Tensor cosine_similarity;             // 1 - p · g of the headings; below 0 where p is longer than 1
  at::Tensor neighbor_margin, road_border;  // the two penalties (penalties.h)

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [simple, position, heading, across, along, cosine, margin, border] = self;
    visit("ego_simple_l2_loss", simple);
    visit("ego_position_l2_loss", position);
    visit("ego_heading_l2_loss", heading);
    visit("ego_position_lat_loss", across);
    visit("ego_position_lon_loss", along);
    visit("ego_cosine_similarity_loss", cosine);
    visit("ego_neighbor_margin_loss", margin);
    visit("ego_road_border_loss", border);
  }
};
/// Of predicted trajectories (B, P, T, 4); margins and the rest are those of `loss`.
EgoMetrics ego_metrics(const at::Tensor& prediction, const Outcome& outcome, const LossOptions& loss);

/// Means over samples and steps. A mean over nothing is 0, so is one that is not measured.
struct PathScores {
  double ego_simple_l2 = 0, ego_position_l2 = 0, ego_heading_l2 = 0;
  double ego_lateral = 0;  // by which the original chooses among checkpoints
  double ego_longitudinal = 0, ego_cosine_similarity = 0, ego_neighbor_margin = 0, ego_road_border = 0;
  double neighbor = 0;              // mean squared error of the channels of (neighbour, step) that are there
  double turn_accuracy = 0;         // of all samples
  double turn_change_accuracy = 0;  // of those whose last two indicators differ
  int64_t samples = 0, turn_changes = 0;
};

/// Sums of a batch of any size, (kPathSums) float64 on its device, in which each row counts the same in all
/// batches: those of several are added up. `prediction` (B, P, T, 4), `logits` of the turn indicator (B, 5;
/// undefined for a model that has none). Reads no value on the host.
inline constexpr int64_t kPathSums = 15;
at::Tensor path_sums(const at::Tensor& prediction, const at::Tensor& logits, const Outcome& outcome,
                     const LossOptions& loss);
/// `sums`: kPathSums of them.
PathScores path_scores(const std::vector<double>& sums);

}  // namespace dtk::diffusion_planner
