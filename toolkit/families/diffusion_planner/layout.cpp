#include "toolkit/families/diffusion_planner/layout.h"

#include <stdexcept>

#include "toolkit/core/format.h"

namespace dtk::diffusion_planner {
namespace {

using c10::ScalarType;

// Of upstream's files, which hold as many as their writer was told to.
constexpr int64_t max_stored_neighbors = 4096;

void check_sizes(const FrameSizes& sizes) {
  for (const int64_t size :
       {sizes.past, sizes.future, sizes.neighbors, sizes.predicted_neighbors, sizes.static_objects,
        sizes.lanes, sizes.lane_points, sizes.route_lanes, sizes.route_points, sizes.lane_features,
        sizes.polygons, sizes.polygon_points, sizes.line_strings, sizes.line_string_points}) {
    if (size < 1) throw std::invalid_argument(fmt::format("FrameSizes: a size is {}; allowed: from 1", size));
  }
  if (sizes.predicted_neighbors > sizes.neighbors) {
    throw std::invalid_argument(
        fmt::format("FrameSizes: predicted_neighbors is {}; allowed: up to neighbors, {}",
                    sizes.predicted_neighbors, sizes.neighbors));
  }
}

}  // namespace

FrameSizes sizes_of(const models::DiffusionPlannerOptions& model) {
  const models::DiffusionPlannerOptions all = models::resolved(model);
  FrameSizes sizes;
  sizes.past = *all.time_len;
  sizes.future = *all.future_len;
  sizes.neighbors = *all.agent_num;
  sizes.predicted_neighbors = *all.predicted_neighbor_num;
  sizes.static_objects = *all.static_objects_num;
  sizes.lanes = *all.lane_num;
  sizes.lane_points = *all.lane_len;
  sizes.route_lanes = *all.route_num;
  sizes.route_points = *all.route_len;
  for (const auto& [key, shape] : models::scene_shapes(all)) {
    if (key == "lanes") sizes.lane_features = shape.back();
  }
  if (all.upstream()) return sizes;
  sizes.polygons = *all.polygon_num;
  sizes.polygon_points = *all.polygon_len;
  sizes.line_strings = *all.line_string_num;
  sizes.line_string_points = *all.line_string_len;
  return sizes;
}

FrameLayout layout_of(const models::DiffusionPlannerOptions& model) {
  return models::resolved(model).upstream() ? FrameLayout::upstream : FrameLayout::version_2;
}

std::vector<NpzArray> frame_arrays(FrameLayout layout, const FrameSizes& sizes) {
  check_sizes(sizes);
  const bool upstream = layout == FrameLayout::upstream;
  std::vector<NpzArray> arrays;
  const auto add = [&](const char* key, std::vector<int64_t> shape, ScalarType type = ScalarType::Float) {
    arrays.push_back({.key = key,
                      .type = type,
                      .shape = std::move(shape),
                      .max_rows = {},
                      .or_double = upstream && type == ScalarType::Float,
                      .other_shape_advice = "make the frame again, or choose the preset that has its sizes"});
  };
  const int64_t neighbors = sizes.neighbors, lanes = sizes.lanes, routes = sizes.route_lanes;
  if (!upstream) add("ego_agent_past", {sizes.past, 3});
  add("ego_current_state", {10});
  add("ego_agent_future", {sizes.future, 3});
  add("neighbor_agents_past", {neighbors, sizes.past, 11});
  if (upstream) arrays.back().max_rows = max_stored_neighbors;
  add("neighbor_agents_future", {sizes.predicted_neighbors, sizes.future, 3});
  if (upstream) {
    arrays.back().max_rows = max_stored_neighbors;
  } else if (sizes.predicted_neighbors < neighbors) {
    arrays.back().max_rows = neighbors;
  }
  add("static_objects", {sizes.static_objects, 10});
  add("lanes", {lanes, sizes.lane_points, sizes.lane_features});
  add("lanes_speed_limit", {lanes, 1});
  add("lanes_has_speed_limit", {lanes, 1}, ScalarType::Bool);
  add("route_lanes", {routes, sizes.route_points, sizes.lane_features});
  add("route_lanes_speed_limit", {routes, 1});
  add("route_lanes_has_speed_limit", {routes, 1}, ScalarType::Bool);
  if (upstream) return arrays;
  add("polygons", {sizes.polygons, sizes.polygon_points, 3});
  add("line_strings", {sizes.line_strings, sizes.line_string_points, 4});
  add("goal_pose", {3});
  add("turn_indicators", {sizes.past}, ScalarType::Int);
  add("ego_shape", {3});
  return arrays;
}

}  // namespace dtk::diffusion_planner
