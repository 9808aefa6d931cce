#include <dtk/toolkit/planner_layout.h>

#include <stdexcept>

namespace dtk {
namespace {

using c10::ScalarType;

constexpr int64_t most_stored_neighbors =
    4096;  // of upstream's files, which hold as many as their writer was told to

void check(const PlannerSizes& sizes) {
  for (const int64_t size :
       {sizes.past, sizes.future, sizes.neighbors, sizes.predicted_neighbors, sizes.static_objects,
        sizes.lanes, sizes.route_lanes, sizes.lane_points, sizes.lane_features, sizes.polygons,
        sizes.polygon_points, sizes.line_strings, sizes.line_string_points}) {
    if (size < 1) {
      throw std::invalid_argument("PlannerSizes: a size is " + std::to_string(size) + "; allowed: from 1");
    }
  }
  if (sizes.predicted_neighbors > sizes.neighbors) {
    throw std::invalid_argument("PlannerSizes: predicted_neighbors is " +
                                std::to_string(sizes.predicted_neighbors) + "; allowed: up to neighbors, " +
                                std::to_string(sizes.neighbors));
  }
}

}  // namespace

std::optional<PlannerSizes> planner_sizes(const std::string& preset) {
  PlannerSizes sizes;
  if (preset == "H") return sizes;
  sizes.neighbors = sizes.predicted_neighbors = 32;
  if (preset == "M") return sizes;
  if (preset != "UP") return std::nullopt;
  sizes.past = 21;
  sizes.predicted_neighbors = 10;
  sizes.lanes = 70;
  sizes.lane_features = 12;
  return sizes;
}

std::vector<NpzArray> planner_arrays(PlannerLayout layout, const PlannerSizes& sizes) {
  check(sizes);
  const bool upstream = layout == PlannerLayout::upstream;
  std::vector<NpzArray> arrays;
  const auto add = [&](const char* key, std::vector<int64_t> shape, ScalarType type = ScalarType::Float) {
    arrays.push_back({.key = key,
                      .type = type,
                      .shape = std::move(shape),
                      .most_rows = {},
                      .or_double = upstream && type == ScalarType::Float,
                      .other_shape_advice = "make the frame again, or choose the preset that has its sizes"});
  };
  const int64_t neighbors = sizes.neighbors, lanes = sizes.lanes, routes = sizes.route_lanes;
  if (!upstream) add("ego_agent_past", {sizes.past, 3});
  add("ego_current_state", {10});
  add("ego_agent_future", {sizes.future, 3});
  add("neighbor_agents_past", {neighbors, sizes.past, 11});
  if (upstream) arrays.back().most_rows = most_stored_neighbors;
  add("neighbor_agents_future", {sizes.predicted_neighbors, sizes.future, 3});
  if (upstream) {
    arrays.back().most_rows = most_stored_neighbors;
  } else if (sizes.predicted_neighbors < neighbors) {
    arrays.back().most_rows = neighbors;
  }
  add("static_objects", {sizes.static_objects, 10});
  add("lanes", {lanes, sizes.lane_points, sizes.lane_features});
  add("lanes_speed_limit", {lanes, 1});
  add("lanes_has_speed_limit", {lanes, 1}, ScalarType::Bool);
  add("route_lanes", {routes, sizes.lane_points, sizes.lane_features});
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

}  // namespace dtk
