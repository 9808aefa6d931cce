// Cars and bicycles on the lanes of a world: they follow each other, stop at red lights and for pedestrians,
// and cross the middle only when nobody is on a way that meets theirs.
#pragma once
#include <vector>

#include "diffusion_planner/random.h"
#include "diffusion_planner/traffic.h"

namespace scenes {

struct Car {
  Track track;
  Driver driver;
  Motion motion;
  size_t leg = 0;
  double along = 0;   // of the rear axle, on the lane of that leg
  int crossing = -1;  // the lane across the middle that is kept free for it, until its tail has left it

  int lane() const { return track.route[leg]; }
};

Shape car_shape(Random& random);

class Cars {
 public:
  /// `roads` must outlive this.
  explicit Cars(const Roads& roads) : roads_(roads), on_lane_(roads.lanes.size()) {}

  const Roads& roads() const { return roads_; }
  const std::vector<Car>& all() const { return cars_; }

  /// From `seconds` to 0.1 s later; `closed` of each of Roads::crossings.
  void step(double seconds, const std::vector<bool>& closed);
  /// Lets one in at the beginning of `lane` if there is room.
  bool enter(int lane, Random& random);

  /// Adds to each track where it is.
  void keep(int step);
  void forget_past();
  /// Moves those whose front has reached the end of their route to `done`.
  void leave(std::vector<Track>& done);
  void leave_all(std::vector<Track>& done);

 private:
  const Lane& lane_of(int lane) const { return roads_.lanes[static_cast<size_t>(lane)]; }
  const Lane& lane_of(const Car& car) const { return lane_of(car.lane()); }
  void sort_by_lane();
  void decide_to_cross(double seconds);
  bool is_first(const Car& car) const;
  bool is_free(int crossing) const;
  double wanted_speed(const Car& car) const;
  double held_back(const Car& car, const std::vector<bool>& closed) const;
  double held_back_by_cars(const Car& car, int lane, double offset) const;
  double held_back_at_crossings(const Car& car, const std::vector<bool>& closed, int lane,
                                double offset) const;
  Point target(const Car& car) const;
  void move(Car& car, double acceleration);
  Indicator indicator(const Car& car) const;

  const Roads& roads_;
  std::vector<Car> cars_;
  std::vector<std::vector<size_t>> on_lane_;  // of cars_
};

}  // namespace scenes
