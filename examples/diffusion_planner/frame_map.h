// The part of a frame that stands still.
#pragma once
#include "diffusion_planner/traffic.h"
#include "toolkit/families/diffusion_planner/batch.h"

namespace scenes {

/// The first value of row `row` of a tensor with `float` values.
float* values_of(const at::Tensor& tensor, int64_t row);

/// Lanes, route, polygons, line strings and static objects around `ego`, the nearest ones first (but the
/// route in its order), to row `row`. The route begins with the lane that `state` is on.
void put_map(const Recording& recording, double seconds, const Pose& ego, const Track& track,
             const State& state, const dtk::diffusion_planner::FrameBatch& batch, int64_t row);

}  // namespace scenes
