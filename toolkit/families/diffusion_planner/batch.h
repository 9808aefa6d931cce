// Samples of the driving model: what was seen around the ego vehicle and what happened next.
#pragma once
#include <ATen/core/Tensor.h>

namespace dtk::diffusion_planner {

/// N samples as they are in their files (layout.h), one behind the other in each tensor. Positions
/// are in metres in the frame of the ego vehicle's current pose, headings in radians, velocities in m/s; time
/// runs in steps of 0.1 s and the last past step is the current one. A row of zeros is an object or a step
/// that is not there. Upstream's files have not all of the arrays: the others' tensors are undefined.
///
/// float32 except where a type is given; sizes as in FrameSizes.
struct FrameBatch {
  at::Tensor ego_agent_past;     // (N, past, 3) x, y, heading
  at::Tensor ego_current_state;  // (N, 10) x, y, cos, sin, vx, vy, ax, ay, steering angle, yaw rate
  at::Tensor ego_agent_future;   // (N, future, 3) x, y, heading
  // (N, neighbors, past, 11) x, y, cos, sin, vx, vy, width, length, type (vehicle, pedestrian, bicycle)
  at::Tensor neighbor_agents_past;
  at::Tensor neighbor_agents_future;       // (N, predicted_neighbors, future, 3) x, y, heading
  at::Tensor static_objects;               // (N, static_objects, 10) x, y, cos, sin, width, length, type (4)
  at::Tensor lanes;                        // (N, lanes, lane_points, lane_features)
  at::Tensor lanes_speed_limit;            // (N, lanes, 1) m/s
  at::Tensor lanes_has_speed_limit;        // (N, lanes, 1), bool
  at::Tensor route_lanes;                  // (N, route_lanes, route_points, lane_features)
  at::Tensor route_lanes_speed_limit;      // (N, route_lanes, 1) m/s
  at::Tensor route_lanes_has_speed_limit;  // (N, route_lanes, 1), bool
  at::Tensor polygons;                     // (N, polygons, polygon_points, 3) x, y, type
  at::Tensor line_strings;                 // (N, line_strings, line_string_points, 4) x, y, type (2)
  at::Tensor goal_pose;                    // (N, 3) x, y, heading
  // (N, past), int32: 0 none, 1 disable, 2 left, 3 right; the last one is to be predicted
  at::Tensor turn_indicators;
  at::Tensor ego_shape;  // (N, 3) wheelbase, length, width

  /// visit(key, tensor) for each array: in a file it has that key.
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    auto& [ego_agent_past, ego_current_state, ego_agent_future, neighbor_agents_past, neighbor_agents_future,
           static_objects, lanes, lanes_speed_limit, lanes_has_speed_limit, route_lanes,
           route_lanes_speed_limit, route_lanes_has_speed_limit, polygons, line_strings, goal_pose,
           turn_indicators, ego_shape] = self;
    visit("ego_agent_past", ego_agent_past);
    visit("ego_current_state", ego_current_state);
    visit("ego_agent_future", ego_agent_future);
    visit("neighbor_agents_past", neighbor_agents_past);
    visit("neighbor_agents_future", neighbor_agents_future);
    visit("static_objects", static_objects);
    visit("lanes", lanes);
    visit("lanes_speed_limit", lanes_speed_limit);
    visit("lanes_has_speed_limit", lanes_has_speed_limit);
    visit("route_lanes", route_lanes);
    visit("route_lanes_speed_limit", route_lanes_speed_limit);
    visit("route_lanes_has_speed_limit", route_lanes_has_speed_limit);
    visit("polygons", polygons);
    visit("line_strings", line_strings);
    visit("goal_pose", goal_pose);
    visit("turn_indicators", turn_indicators);
    visit("ego_shape", ego_shape);
  }
};

}  // namespace dtk::diffusion_planner
