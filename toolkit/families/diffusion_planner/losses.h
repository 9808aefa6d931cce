// The loss terms of the driving model. B batch, P actors (the ego first), T future steps.
#pragma once
#include <ATen/core/Tensor.h>

#include "toolkit/families/diffusion_planner/options.h"

namespace dtk::diffusion_planner {

/// What the terms read beside the network's outputs. States are in the network's units, futures in metres.
struct Supervision {
  at::Tensor targets;               // (B, P, 1 + T, 4), of targets_of()
  at::Tensor ego_current_state;     // (B, at least 5): the speed ahead is number 4
  at::Tensor neighbor_agents_past;  // (B, at least P-1, V, 11)
  at::Tensor neighbors_future;      // (B, P-1, T, 4)
  at::Tensor absent;                // (B, P-1, T), bool
  at::Tensor line_strings;          // (B, M, L, 4); undefined: no road borders, as with upstream's data
  at::Tensor ego_shape;             // (B, 3), metres; undefined: neither border nor collision
  at::Tensor turn_indicators;       // (B, V), whole numbers; undefined: no such head
};

/// Scalars, each without its weight; one is undefined where its weight is 0 or its input is not there.
struct Losses {
  at::Tensor ego, neighbor, turn_indicator, road_border, collision;

  /// Their sum with their weights.
  at::Tensor total(const LossOptions& options) const;
};

/// ℓ (B, P, T) of each pose of `trajectories` (B, P, 1 + T, 4): the deviation across and along the true
/// heading and that of cos, sin, weighted; in velocity representation the squared error of the four channels
/// and of where the ways lead to, of which only the last integrated_window ways learn.
at::Tensor pose_errors(const at::Tensor& trajectories, const Supervision& supervision,
                       const ProcessOptions& process, const LossOptions& options);

/// Class that the turn indicator head is to predict (B, int64): 4 where the last two of `indicators` (B, V)
/// are the same, else the last; and where they differ (B, bool).
struct TurnLabels {
  at::Tensor label, changed;
};
TurnLabels turn_labels(const at::Tensor& indicators);

/// All terms of predicted `trajectories` (B, P, 1 + T, 4) and turn indicator `logits` (B, 5; may be
/// undefined). The mean over neighbours is over those (neighbour, step) that are there, 0 if none is; nothing
/// is read on the host, so that a term without border or neighbour is a 0 with a gradient of 0. Computed in
/// the type of the targets.
Losses losses_of(const at::Tensor& trajectories, const at::Tensor& logits, const Supervision& supervision,
                 const ProcessOptions& process, const LossOptions& options);

}  // namespace dtk::diffusion_planner
