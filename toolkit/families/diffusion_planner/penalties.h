// What the driving model's ego must not come near: road borders and other traffic. B batch, T steps.
#pragma once
#include <ATen/core/Tensor.h>

#include "toolkit/families/diffusion_planner/options.h"

namespace dtk::diffusion_planner {

/// Line strings (B, M, L, 4) of x, y and two type flags in the network's units, as metres; rows of zeros
/// stay.
at::Tensor line_strings_in_metres(const at::Tensor& line_strings);

/// Points (B, T, K, 2) on the outline of the ego's box, K = 4 · (1 + loss.border_points), from its front left
/// corner by the right: `poses` (B, T, 4) of x, y (m), cos, sin lie half a wheelbase behind the box's centre,
/// ego_shape (B, 3) is wheelbase, length, width.
at::Tensor ego_outline(const at::Tensor& poses, const at::Tensor& ego_shape, const LossOptions& loss);

/// (B, T): by how many metres the ego's outline comes nearer than loss.border_margin to a road border, which
/// is a line string (B, M, L, 4; metres) with its second flag set at any point; segments from or to a row of
/// zeros do not count. 0 for a sample without borders. Differentiable in `poses`, exactly as the least of all
/// distances is: they are searched in chunks of which nothing is kept, and of each step only the nearest pair
/// is recomputed with its gradient.
at::Tensor road_border_penalty(const at::Tensor& poses, const at::Tensor& ego_shape,
                               const at::Tensor& line_strings, const LossOptions& loss);

/// Neighbours as the collision term sees them; metres.
struct Traffic {
  at::Tensor width, length;  // (B, N)
  at::Tensor kinds;          // (B, N, 3): vehicle, pedestrian, bicycle; a vehicle where all are 0
  at::Tensor futures;        // (B, N, T, 4)
  at::Tensor absent;         // (B, N, T), bool
};
/// Of neighbours' present rows (B, N, 11): width, length at 6, 7, which are multiplied by `unit`.
Traffic traffic_of(const at::Tensor& now, double unit, const at::Tensor& futures, const at::Tensor& absent);

/// (B, T): how deep, in metres, the ego's box reaches into the deepest neighbour's, which is larger by the
/// margin of its kind on each side. Looked at in five steps of the horizon (0, 20, 40, 60, 79 of 80), 0 in
/// all others. Where one box's extent lies within the other's along the axis of least depth, the gradient is
/// 0.
at::Tensor collision_penalty(const at::Tensor& poses, const at::Tensor& ego_shape, const Traffic& traffic,
                             const LossOptions& loss);

}  // namespace dtk::diffusion_planner
