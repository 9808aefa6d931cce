// Which arrays a file of one sample of the driving model holds, and of which shapes.
#pragma once
#include <dtk/models/diffusion_planner_options.h>

#include <cstdint>
#include <vector>

#include "toolkit/io/npz.h"

namespace dtk::diffusion_planner {

/// Counts of one sample. Defaults: preset "H".
struct FrameSizes {
  int64_t past = 31;    // steps, with the current one
  int64_t future = 80;  // steps
  int64_t neighbors = 320;
  int64_t predicted_neighbors = 320;  // the first ones, whose futures are learnt; at most `neighbors`
  int64_t static_objects = 5;
  int64_t lanes = 140, lane_points = 20;
  int64_t route_lanes = 25, route_points = 20;
  int64_t lane_features = 33;  // of a point of either
  int64_t polygons = 10, polygon_points = 40;
  int64_t line_strings = 60, line_string_points = 20;

  friend bool operator==(const FrameSizes&, const FrameSizes&) = default;
};

enum class FrameLayout {
  version_2,  // with ego past, polygons, line strings, goal, turn indicators and ego shape, and "version",
              // which is 2
  upstream,   // without these; float64 is taken for float32, and there may be more neighbours than are read
};

inline constexpr uint32_t kFrameVersion = 2;

/// What the model of these options reads: its sizes, and the layout that its preset was trained from. Sizes
/// of arrays that the layout has not stay as they are by default. Throws as models::resolved().
FrameSizes sizes_of(const models::DiffusionPlannerOptions& model);
FrameLayout layout_of(const models::DiffusionPlannerOptions& model);

/// The arrays of a file in the order of FrameBatch::fields(), without "version". Shapes are those of one
/// sample in a batch. Throws std::invalid_argument for a size below 1 or more predicted neighbours than
/// neighbours.
std::vector<NpzArray> frame_arrays(FrameLayout layout, const FrameSizes& sizes);

}  // namespace dtk::diffusion_planner
