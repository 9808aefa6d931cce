// One frame of the driving model as a picture that shows at a glance what is going on.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "toolkit/data/image.h"
#include "toolkit/families/diffusion_planner/batch.h"

namespace scenes {

struct SceneImageOptions {
  int64_t pixels = 640;  // of each side, 200 at least
  double reach = 0;      // m from the ego vehicle to the edge; 0: so that its paths fit in
};

/// Row `row` of `batch` (on the CPU) from above, the ego vehicle in the middle and heading up. Beside what
/// the frame holds, `predicted` (trajectories, steps, 3 or 4): x, y, heading or x, y, cos, sin in metres in
/// the ego vehicle's frame, its own first. Undefined: none.
///
/// Asphalt are the lanes, blue the route; lines across a junction have the colours of their lights. On the
/// paths each second has a dot. Throws std::invalid_argument for a prediction of another shape,
/// std::out_of_range for the row.
dtk::Image draw_scene(const dtk::diffusion_planner::FrameBatch& batch, int64_t row,
                      const at::Tensor& predicted = {}, const SceneImageOptions& options = {});

}  // namespace scenes
