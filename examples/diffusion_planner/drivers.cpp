#include "diffusion_planner/drivers.h"

#include <algorithm>
#include <cmath>

namespace scenes {
namespace {

double square(double value) {
  return value * value;
}

}  // namespace

double free_acceleration(const Driver& driver, double speed, double wanted) {
  // Above the wanted speed the model's own term grows too late to slow down in time for a bend.
  if (speed > wanted) return std::max(-3.0, -2 * (speed - wanted));
  return driver.acceleration * (1 - std::pow(speed / std::max(wanted, 0.1), 4));
}

double hold_back(const Driver& driver, double speed, double gap, double closing) {
  const double in_time = speed * closing / (2 * std::sqrt(driver.acceleration * driver.braking));
  const double wanted = driver.gap + std::max(0.0, speed * driver.headway + in_time);
  return driver.acceleration * square(wanted / std::max(gap, 0.1));
}

double hold_back_at_line(const Driver& driver, double speed, double gap) {
  Driver exact = driver;
  exact.headway = 0.3, exact.gap = 0.6;
  return hold_back(exact, speed, gap, speed);
}

double view(const Shape& shape, double speed) {
  return std::max(1.3 * shape.wheelbase, 0.6 * speed + 1.5);
}

Motion driven(const Motion& before, const Shape& shape, double acceleration, Point target) {
  constexpr double jerk_up = 0.5, jerk_down = 1, max_steering = 0.6, max_turned = 0.08;  // each per step
  Motion after;
  const double changed =
      std::clamp(acceleration, before.acceleration - jerk_down, before.acceleration + jerk_up);
  after.speed =
      std::max(0.0, before.speed + time_step * std::clamp(changed, -hardest_braking, hardest_start));
  after.acceleration = (after.speed - before.speed) / time_step;
  const Point seen = before.pose.sees(target);
  const double wanted = std::atan(2 * shape.wheelbase * seen.y / std::max(dot(seen, seen), 0.5));
  const double rate = before.speed > 0.1 ? max_turned : 0;  // nobody turns the wheel of a standing car
  after.steering = std::clamp(std::clamp(wanted, -max_steering, max_steering), before.steering - rate,
                              before.steering + rate);
  const double way = time_step * (before.speed + after.speed) / 2;
  const double turned = way * std::tan(after.steering) / shape.wheelbase;
  after.yaw_rate = turned / time_step;
  after.pose.at = before.pose.at + direction(before.pose.heading + turned / 2) * way;
  after.pose.heading = wrapped(before.pose.heading + turned);
  return after;
}

}  // namespace scenes
