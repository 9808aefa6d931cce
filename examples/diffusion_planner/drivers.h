// How a vehicle is driven: how fast by the intelligent driver model, where to by pure pursuit.
#pragma once
#include "diffusion_planner/geometry.h"

namespace scenes {

inline constexpr double time_step = 0.1;                           // s
inline constexpr double hardest_braking = 6, hardest_start = 2.5;  // m/s²

/// Of a vehicle or a bicycle, as long before its front axle as behind its rear one.
struct Shape {
  double wheelbase = 0, length = 0, width = 0;

  double front() const { return (length + wheelbase) / 2; }  // of the rear axle
  double rear() const { return (length - wheelbase) / 2; }   // likewise
};

/// Habits.
struct Driver {
  double pace = 1;    // of what the road allows
  double most = 100;  // m/s
  double headway = 1.4, gap = 2;
  double acceleration = 1.5, braking = 2;
};

/// Of the middle of the rear axle.
struct Motion {
  Pose pose;
  double speed = 0, acceleration = 0, steering = 0, yaw_rate = 0;
};

/// m/s² towards the speed `wanted` on a free road.
double free_acceleration(const Driver& driver, double speed, double wanted);
/// What to take off that for something `gap` ahead that is `closing` m/s slower.
double hold_back(const Driver& driver, double speed, double gap, double closing);
/// The same for a line to stop at.
double hold_back_at_line(const Driver& driver, double speed, double gap);

/// How far ahead of the rear axle the place is that one steers for.
double view(const Shape& shape, double speed);
/// One time step; steers towards `target`.
Motion driven(const Motion& before, const Shape& shape, double acceleration, Point target);

}  // namespace scenes
