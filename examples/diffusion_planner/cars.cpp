#include "diffusion_planner/cars.h"

#include <algorithm>
#include <cmath>

namespace scenes {
namespace {

constexpr double sight = 100;  // m

Driver draw_driver(Random& random, bool bicycle) {
  Driver driver;
  driver.pace = random.between(0.85, 1.05);
  driver.headway = random.between(1.0, 1.8);
  driver.gap = random.between(1.5, 2.5);
  driver.acceleration = random.between(1.2, 2.0);
  driver.braking = random.between(1.5, 2.5);
  if (bicycle) driver.most = random.between(3.5, 6), driver.acceleration = 1;
  return driver;
}

}  // namespace

Shape car_shape(Random& random) {
  if (random.chance(0.12)) {
    const double wheelbase = random.between(3.2, 3.8);  // a van
    return {wheelbase, wheelbase + random.between(1.9, 2.4), random.between(1.95, 2.1)};
  }
  const double wheelbase = random.between(2.45, 2.95);
  return {wheelbase, wheelbase + random.between(1.5, 1.95), random.between(1.7, 1.95)};
}

void Cars::sort_by_lane() {
  for (auto& cars : on_lane_) cars.clear();
  for (size_t i = 0; i < cars_.size(); ++i) on_lane_[static_cast<size_t>(cars_[i].lane())].push_back(i);
}

bool Cars::is_free(int crossing) const {
  const auto& conflicts = lane_of(crossing).conflicts;
  return std::none_of(cars_.begin(), cars_.end(), [&](const Car& other) {
    return std::find(conflicts.begin(), conflicts.end(), other.crossing) != conflicts.end();
  });
}

/// Of those on its lane that have not decided yet.
bool Cars::is_first(const Car& car) const {
  const auto& others = on_lane_[static_cast<size_t>(car.lane())];
  return std::none_of(others.begin(), others.end(), [&](size_t other) {
    return cars_[other].along > car.along && cars_[other].crossing < 0;
  });
}

void Cars::decide_to_cross(double seconds) {
  constexpr double can_stop = 2.5;  // m/s²
  for (Car& car : cars_) {
    const Lane& lane = lane_of(car);
    if (!lane.approach) continue;
    const double room = lane.path.length() - (car.along + car.track.shape.front());
    const Light seen = light(roads_, lane.arm, seconds);
    const bool open = seen == Light::green || seen == Light::none;
    const double speed = car.motion.speed;
    if (car.crossing >= 0) {
      if (!open && room > 0 && speed * speed < 2 * can_stop * room) car.crossing = -1;
    } else if (open && room < 4 * speed + 10 && is_first(car) && is_free(car.track.route[car.leg + 1])) {
      car.crossing = car.track.route[car.leg + 1];
    }
  }
}

double Cars::wanted_speed(const Car& car) const {
  constexpr double gentle_braking = 1.4, looked_ahead = 80;
  const auto& here = lane_of(car).pace;
  double wanted = here[std::min(static_cast<size_t>(car.along), here.size() - 1)];
  double offset = lane_of(car).path.length() - car.along;
  for (size_t leg = car.leg + 1; leg < car.track.route.size() && offset < looked_ahead; ++leg) {
    const Lane& next = lane_of(car.track.route[leg]);
    wanted = std::min(wanted, std::sqrt(next.pace[0] * next.pace[0] + 2 * gentle_braking * offset));
    offset += next.path.length();
  }
  return std::min(wanted * car.driver.pace, car.driver.most);
}

double Cars::held_back_by_cars(const Car& car, int lane, double offset) const {
  const Path& path = lane_of(lane).path;
  const double front = car.along + car.track.shape.front();
  const bool own = lane == car.lane();
  double most = 0;
  const auto look = [&](const Car& other, bool other_way) {
    if (&other == &car || (own && other.along <= car.along)) return;
    const double rear = other.along - other.track.shape.rear();
    if (other_way && rear > 0) {
      constexpr double room = 2.7;  // where ways have parted so far, one drives past
      const Point tail = other.motion.pose.ahead(-other.track.shape.rear());
      if (length(tail - path.at(rear).at) > room) return;
    }
    most = std::max(most, hold_back(car.driver, car.motion.speed, offset + rear - front,
                                    car.motion.speed - other.motion.speed));
  };
  for (const size_t other : on_lane_[static_cast<size_t>(lane)]) look(cars_[other], false);
  for (const int sibling : lane_of(lane).siblings) {
    for (const size_t other : on_lane_[static_cast<size_t>(sibling)]) look(cars_[other], true);
  }
  return most;
}

double Cars::held_back_at_crossings(const Car& car, const std::vector<bool>& closed, int lane,
                                    double offset) const {
  constexpr double hardest = 4;  // m/s² that one brakes with for somebody who is on the road
  double most = 0;
  for (size_t i = 0; i < closed.size(); ++i) {
    if (!closed[i]) continue;
    for (const Crossing::Stop& stop : roads_.crossings[i].stops) {
      const double gap = offset + stop.at - (car.along + car.track.shape.front());
      if (stop.lane != lane || gap < -0.5) continue;
      if (car.motion.speed * car.motion.speed > 2 * hardest * std::max(gap, 0.1)) continue;
      most = std::max(most, hold_back_at_line(car.driver, car.motion.speed, gap));
    }
  }
  return most;
}

double Cars::held_back(const Car& car, const std::vector<bool>& closed) const {
  double most = 0, offset = 0;
  for (size_t leg = car.leg; leg < car.track.route.size() && offset - car.along < sight; ++leg) {
    const int lane = car.track.route[leg];
    most = std::max(most, held_back_by_cars(car, lane, offset));
    most = std::max(most, held_back_at_crossings(car, closed, lane, offset));
    offset += lane_of(lane).path.length();
    if (lane_of(lane).approach && car.crossing < 0) {
      const double gap = offset - (car.along + car.track.shape.front());
      return std::max(most, hold_back_at_line(car.driver, car.motion.speed, gap));
    }
  }
  return most;
}

Point Cars::target(const Car& car) const {
  double along = car.along + view(car.track.shape, car.motion.speed);
  size_t leg = car.leg;
  while (leg + 1 < car.track.route.size() && along > lane_of(car.track.route[leg]).path.length()) {
    along -= lane_of(car.track.route[leg++]).path.length();
  }
  const Path& path = lane_of(car.track.route[leg]).path;
  const double beyond = std::max(0.0, along - path.length());
  return path.at(along).ahead(beyond);
}

void Cars::move(Car& car, double acceleration) {
  car.motion = driven(car.motion, car.track.shape, acceleration, target(car));
  const Path* path = &lane_of(car).path;
  car.along = path->nearest(car.motion.pose.at, car.along + car.motion.speed * time_step);
  while (car.along >= path->length() && car.leg + 1 < car.track.route.size()) {
    ++car.leg;
    path = &lane_of(car).path;
    car.along = path->nearest(car.motion.pose.at, 0);
  }
  const bool is_across = !lane_of(car).approach && !lane_of(car).crosses;
  if (is_across && car.along > car.track.shape.rear() + 0.5) car.crossing = -1;
}

void Cars::step(double seconds, const std::vector<bool>& closed) {
  sort_by_lane();
  decide_to_cross(seconds);
  std::vector<double> accelerations;
  for (const Car& car : cars_) {
    accelerations.push_back(free_acceleration(car.driver, car.motion.speed, wanted_speed(car)) -
                            held_back(car, closed));
  }
  for (size_t i = 0; i < cars_.size(); ++i) move(cars_[i], accelerations[i]);
}

bool Cars::enter(int lane, Random& random) {
  double room = sight, speed = 100;
  for (const Car& other : cars_) {
    const double rear = other.along - other.track.shape.rear();
    if (other.lane() == lane && rear < room) room = rear, speed = other.motion.speed;
  }
  Car car;
  const bool bicycle = lane_of(lane).for_bicycles;
  car.track.kind = bicycle ? Kind::bicycle : Kind::vehicle;
  car.track.shape = bicycle ? Shape{1.05, 1.8, 0.6} : car_shape(random);
  car.driver = draw_driver(random, bicycle);
  const std::vector<int>& ways = lane_of(lane).next;
  const int way = ways[random.below(ways.size())];
  car.track.route = {lane, way, lane_of(way).next.front()};
  car.motion.pose = lane_of(lane).path.at(0);
  car.motion.speed = std::min(wanted_speed(car), speed + 0.15 * room);
  if (room - car.track.shape.front() < 6 + 1.5 * car.motion.speed) return false;
  cars_.push_back(std::move(car));
  return true;
}

Indicator Cars::indicator(const Car& car) const {
  constexpr double told_before = 40;  // m
  size_t leg = car.leg;
  if (lane_of(car).approach && lane_of(car).path.length() - car.along < told_before) ++leg;
  const Lane& way = lane_of(car.track.route[leg]);
  if (!way.crosses || way.turn == Turn::straight) return Indicator::off;
  return way.turn == Turn::left ? Indicator::left : Indicator::right;
}

void Cars::keep(int step) {
  for (Car& car : cars_) {
    if (car.track.states.empty()) car.track.first = step;
    car.track.states.push_back({car.motion, indicator(car), static_cast<int>(car.leg), car.along});
  }
}

void Cars::forget_past() {
  for (Car& car : cars_) car.track.states.clear();
}

void Cars::leave(std::vector<Track>& done) {
  const auto is_through = [&](const Car& car) {
    return car.leg + 1 == car.track.route.size() &&
           car.along + car.track.shape.front() >= lane_of(car).path.length();
  };
  for (Car& car : cars_) {
    if (is_through(car)) done.push_back(car.track);
  }
  std::erase_if(cars_, is_through);
}

void Cars::leave_all(std::vector<Track>& done) {
  for (Car& car : cars_) done.push_back(std::move(car.track));
  cars_.clear();
}

}  // namespace scenes
