// The ego's shifted state, what it meets, and the way back.
#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "toolkit/core/format.h"
#include "toolkit/families/diffusion_planner/augmentation.h"
#include "toolkit/families/diffusion_planner/boxes.h"
#include "toolkit/families/diffusion_planner/smoothing.h"

namespace dtk::diffusion_planner {
namespace {

constexpr double kLargestYawRate = 0.85;  // rad/s
constexpr double kStandstill = 0.2;       // m/s
constexpr double kMinOffset = 0.01;       // m from a lane's centre to its boundary

at::Tensor column(const at::Tensor& state, int64_t index) {
  return state.select(1, index);
}

// Whether shapes with these depths along all axes that can part them meet.
at::Tensor meet(const at::Tensor& depths) {
  return depths.amin(-1).ge(0);
}

// Ego boxes (B, 4, 2) against boxes of neighbours now (B, N, 11).
at::Tensor meets_neighbors(const at::Tensor& box, const at::Tensor& heading, const at::Tensor& now) {
  const at::Tensor direction = now.narrow(2, 2, 2);
  const at::Tensor boxes = boxes::corners(now.narrow(2, 0, 2), direction, now.select(2, 7), now.select(2, 6));
  const at::Tensor own = boxes::axes(heading).unsqueeze(1).expand({-1, now.size(1), -1, -1});
  const at::Tensor axes = at::cat({own, boxes::axes(direction)}, 2);
  const at::Tensor there = now.narrow(2, 0, 6).ne(0).any(-1);
  return (meet(boxes::depths(axes, box.unsqueeze(1), boxes)) & there).any(-1);
}

// The same against the segments of one side of the lanes, whose offset from the centre begins at `feature`.
at::Tensor meets_boundary(const at::Tensor& box, const at::Tensor& heading, const at::Tensor& lanes,
                          int64_t feature) {
  const int64_t count = lanes.size(2) - 1;
  const at::Tensor offset = lanes.narrow(3, feature, 2);
  const at::Tensor there =
      lanes.narrow(3, 0, 8).ne(0).any(-1) & at::linalg_vector_norm(offset, 2, {-1}).gt(kMinOffset);
  const at::Tensor points = lanes.narrow(3, 0, 2) + offset;
  const at::Tensor begin = points.narrow(2, 0, count).flatten(1, 2),
                   end = points.narrow(2, 1, count).flatten(1, 2);
  const at::Tensor along = end - begin;
  const at::Tensor across = at::stack({along.select(2, 1).neg(), along.select(2, 0)}, -1).unsqueeze(2);
  const at::Tensor own = boxes::axes(heading).unsqueeze(1).expand({-1, begin.size(1), -1, -1});
  const at::Tensor depths =
      boxes::depths(at::cat({own, across}, 2), box.unsqueeze(1), at::stack({begin, end}, 2));
  const at::Tensor valid = (there.narrow(2, 0, count) & there.narrow(2, 1, count)).flatten(1, 2);
  return (meet(depths) & valid).any(-1);
}

// Speed, acceleration and yaw rate of a moving point (B, 2), and the direction it moves in.
struct Motion {
  at::Tensor x, y, heading, speed, acceleration, yaw_rate;
};

// Position, velocity and acceleration (B, 3) of one coordinate.
struct Boundary {
  at::Tensor x, y;
};

Boundary boundary(const Motion& motion) {
  const at::Tensor cosine = motion.heading.cos(), sine = motion.heading.sin();
  const at::Tensor turning = motion.speed * motion.yaw_rate;
  return {at::stack({motion.x, motion.speed * cosine, motion.acceleration * cosine - turning * sine}, -1),
          at::stack({motion.y, motion.speed * sine, motion.acceleration * sine + turning * cosine}, -1)};
}

// A state has one number too many for what leads on from it: the acceleration counts by its size.
Motion motion_of_state(const at::Tensor& state, const at::Tensor& future, int64_t ahead) {
  Motion start;
  start.x = column(state, 0), start.y = column(state, 1);
  const at::Tensor target = future.select(1, ahead);
  start.heading = at::atan2(target.select(1, 1) - start.y, target.select(1, 0) - start.x);
  start.speed = at::hypot(column(state, 4), column(state, 5));
  start.acceleration = at::hypot(column(state, 6), column(state, 7));
  start.yaw_rate = column(state, 9);
  return start;
}

// At step `index` of a future, by backward differences.
Motion motion_at(const at::Tensor& future, int64_t index) {
  const at::Tensor pose = future.select(1, index), before = future.select(1, index - 1);
  const at::Tensor way = (pose - before) / kTrajectoryStep;
  const at::Tensor turn = pose.select(1, 2) - before.select(1, 2);
  const at::Tensor bend = (way - (before - future.select(1, index - 2)) / kTrajectoryStep) / kTrajectoryStep;
  return {pose.select(1, 0),
          pose.select(1, 1),
          pose.select(1, 2),
          at::hypot(way.select(1, 0), way.select(1, 1)),
          at::hypot(bend.select(1, 0), bend.select(1, 1)),
          at::atan2(turn.sin(), turn.cos()) / kTrajectoryStep};
}

// What a quintic over `duration` has at time t of position, velocity and acceleration at its begin and end.
std::array<double, 6> quintic_shares(double t, double duration) {
  const double s = t / duration, s2 = s * s, s3 = s2 * s, s4 = s3 * s, s5 = s4 * s;
  const double half = duration * duration / 2;
  return {1 - 10 * s3 + 15 * s4 - 6 * s5,         duration * (s - 6 * s3 + 8 * s4 - 3 * s5),
          half * (s2 - 3 * s3 + 3 * s4 - s5),     10 * s3 - 15 * s4 + 6 * s5,
          duration * (-4 * s3 + 7 * s4 - 3 * s5), half * (s3 - 2 * s4 + s5)};
}

// One coordinate (B, steps) at 0.1 s, 0.2 s ... on quintics over (steps + 1) · 0.1 s.
at::Tensor on_quintics(const at::Tensor& begin, const at::Tensor& end, int64_t steps) {
  const double duration = kTrajectoryStep * static_cast<double>(steps + 1);
  std::vector<at::Tensor> values;
  for (int64_t i = 1; i <= steps; ++i) {
    const std::array<double, 6> shares = quintic_shares(kTrajectoryStep * static_cast<double>(i), duration);
    at::Tensor value;
    for (int64_t k = 0; k < 6; ++k) {
      const at::Tensor part = (k < 3 ? begin : end).select(1, k % 3);
      const double share = shares[static_cast<size_t>(k)];
      value = value.defined() ? at::add(value, part, share) : part * share;
    }
    values.push_back(value);
  }
  return at::stack(values, 1);
}

}  // namespace

at::Tensor shifted_state(const FrameBatch& scene, const at::Tensor& uniform,
                         const AugmentationOptions& options) {
  const at::Tensor& state = scene.ego_current_state;
  const std::array<double, 9> largest = {0, options.lateral, options.yaw, 1, 0.5, 0.2, 0.1, 0, 0};
  const auto shifted = [&](int64_t index, const at::Tensor& value) {
    const at::Tensor drawn = uniform.select(1, uniform.size(1) == 1 ? 0 : index);
    return at::add(value, drawn * 2 - 1, largest[static_cast<size_t>(index)]);
  };
  const at::Tensor yaw = shifted(2, at::atan2(column(state, 3), column(state, 2)));
  const at::Tensor vx = shifted(3, column(state, 4)).clamp_min(0);
  at::Tensor rate = shifted(8, column(state, 9)).clamp(-kLargestYawRate, kLargestYawRate);
  const at::Tensor stands = vx.lt(kStandstill);
  const at::Tensor moving = vx.masked_fill(stands, 1);
  constexpr double kLargestSteering = 2 * std::numbers::pi / 3;
  at::Tensor steering = at::atan(rate * column(scene.ego_shape, 0) / moving);
  steering = steering.clamp(-kLargestSteering, kLargestSteering).masked_fill(stands, 0);
  rate = rate.masked_fill(stands, 0);
  return at::stack({shifted(0, column(state, 0)), shifted(1, column(state, 1)), yaw.cos(), yaw.sin(), vx,
                    shifted(4, column(state, 5)), shifted(5, column(state, 6)), shifted(6, column(state, 7)),
                    steering, rate},
                   1);
}

at::Tensor meets_something(const FrameBatch& scene, const at::Tensor& state) {
  const at::Tensor heading = state.narrow(1, 2, 2);
  const at::Tensor box =
      boxes::corners(state.narrow(1, 0, 2), heading, column(scene.ego_shape, 1), column(scene.ego_shape, 2));
  const at::Tensor& past = scene.neighbor_agents_past;
  at::Tensor met = meets_neighbors(box, heading, past.select(2, past.size(2) - 1));
  met = met | meets_boundary(box, heading, scene.lanes, 4);
  return met | meets_boundary(box, heading, scene.lanes, 6);
}

at::Tensor accepted_shifts(const FrameBatch& scene, const at::Tensor& state, const at::Tensor& coin,
                           const AugmentationOptions& options) {
  at::Tensor speed = column(scene.ego_current_state, 4);
  if (options.shifted_reversing) speed = speed.abs();
  const at::Tensor wanted = coin.lt(options.probability) & speed.ge(options.min_speed);
  return wanted & meets_something(scene, state).logical_not();
}

at::Tensor rebuilt_future(const at::Tensor& future, const at::Tensor& state,
                          const AugmentationOptions& options) {
  const int64_t steps = options.rebuilt, all = future.size(1);
  if (steps < 2 || steps >= all) {
    throw std::invalid_argument(fmt::format(
        "diffusion_planner.augmentation.rebuilt = {} with futures of {} steps: allowed are 2 to {}", steps,
        all, all - 1));
  }
  const Boundary begin = boundary(motion_of_state(state, future, steps / 2));
  const Boundary end = boundary(motion_at(future, steps));
  const at::Tensor x = on_quintics(begin.x, end.x, steps), y = on_quintics(begin.y, end.y, steps);
  const auto ways = [&](const at::Tensor& first, const at::Tensor& coordinate) {
    return coordinate - at::cat({first.unsqueeze(1), coordinate.narrow(1, 0, steps - 1)}, 1);
  };
  const at::Tensor heading = at::atan2(ways(column(state, 1), y), ways(column(state, 0), x));
  return at::cat({at::stack({x, y, heading}, -1), future.narrow(1, steps, all - steps)}, 1);
}

}  // namespace dtk::diffusion_planner
