// Frames of the driving model from a recorded world, as families/diffusion_planner/batch.h describes them.
//
// Types that the format numbers but does not name are chosen here. Lines beside a lane: those of Line in that
// order. Line strings: stop line, road border. Polygons: 1 the junction, 0 a zebra crossing. Static objects:
// sign, barrier, cone, other.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "diffusion_planner/traffic.h"
#include "toolkit/families/diffusion_planner/batch.h"
#include "toolkit/families/diffusion_planner/layout.h"

namespace scenes {

inline constexpr int recorded_steps = 600;
inline constexpr int64_t max_steps = 300;  // of past and future together

/// What is around the ego vehicle is seen up to here, m.
inline constexpr double seen_lanes = 120, seen_things = 100;

/// Of a recording: its `ego` among the tracks, at `step`.
struct Moment {
  int step = 0;
  size_t ego = 0;
};

/// What is wrong with sizes that a frame cannot be drawn in, or "".
std::string wrong_sizes(const dtk::diffusion_planner::FrameSizes& sizes);

/// Up to `count` moments, each a car's whose past and future are all there, no two of one car within 3 s;
/// only few of cars that stand all the time.
std::vector<Moment> choose_moments(const Recording& recording,
                                   const dtk::diffusion_planner::FrameSizes& sizes, size_t count,
                                   uint64_t seed);

/// Zeros in all arrays of the layout.
dtk::diffusion_planner::FrameBatch empty_frames(dtk::diffusion_planner::FrameLayout layout,
                                                const dtk::diffusion_planner::FrameSizes& sizes,
                                                int64_t count);

/// Writes a moment to row `row` of `batch`, as empty_frames() made it, each row once.
void put_frame(const Recording& recording, const Moment& moment,
               const dtk::diffusion_planner::FrameBatch& batch, int64_t row);

}  // namespace scenes
