#include "diffusion_planner/traffic.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "diffusion_planner/cars.h"
#include "diffusion_planner/walkers.h"

namespace scenes {
namespace {

constexpr int warm_up = 400;  // steps
constexpr double yield_braking = 1.5;

class Traffic {
 public:
  Traffic(uint64_t seed, const Roads& roads) : random_(seed, 2), cars_(roads) {
    const auto count = 4 + random_.below(12);
    while (walkers_.size() < count) walkers_.push_back(make_walker(roads, random_));
    for (Walker& walker : walkers_) walker.along = random_.unit() * walker.path.length();
    const double usual = roads.arms.size() == 2 ? random_.between(4, 9) : random_.between(9, 18);
    for (size_t i = 0; i < roads.lanes.size(); ++i) {
      const Lane& lane = roads.lanes[i];
      if (!lane.approach || lane.next.empty()) continue;
      const double every = lane.for_bicycles ? 30 : usual * random_.between(0.7, 1.5);
      sources_.push_back({static_cast<int>(i), every, random_.unit() * every});
    }
  }

  void step(double seconds) {
    cars_.step(seconds, closed_crossings());
    const auto is_free = [&](int crossing) { return can_step_on(crossing); };
    for (Walker& walker : walkers_) walker.track.states.push_back(walk(walker, is_free));
    for (Source& source : sources_) {
      source.wait -= time_step;
      if (source.wait > 0 || !cars_.enter(source.lane, random_)) continue;
      source.wait = source.every * random_.between(0.4, 1.6);
    }
  }

  /// Puts those that are through into `done`, and others on the pavements in their place.
  void leave(int step, std::vector<Track>& done) {
    cars_.leave(done);
    for (Walker& walker : walkers_) {
      if (!walker.gone()) continue;
      done.push_back(std::move(walker.track));
      walker = make_walker(cars_.roads(), random_);
      walker.track.first = step;
    }
  }
  void forget_past() {
    cars_.forget_past();
    for (Walker& walker : walkers_) walker.track.states.clear();
  }
  void leave_all(std::vector<Track>& done) {
    cars_.leave_all(done);
    for (Walker& walker : walkers_) done.push_back(std::move(walker.track));
  }
  void keep(int step) { cars_.keep(step); }

 private:
  struct Source {
    int lane = 0;
    double every = 0, wait = 0;  // s
  };

  std::vector<bool> closed_crossings() const {
    std::vector<bool> closed(cars_.roads().crossings.size());
    for (const Walker& walker : walkers_) {
      if (walker.on_road()) closed[static_cast<size_t>(walker.crossing)] = true;
    }
    return closed;
  }

  bool can_step_on(int crossing) const {
    for (const Crossing::Stop& stop : cars_.roads().crossings[static_cast<size_t>(crossing)].stops) {
      for (const Car& car : cars_.all()) {
        if (car.lane() != stop.lane || car.along - car.track.shape.rear() > stop.end) continue;
        const double room = stop.at - (car.along + car.track.shape.front());
        if (room < 0 || car.motion.speed * car.motion.speed > 2 * yield_braking * room) return false;
      }
    }
    return true;
  }

  Random random_;
  Cars cars_;
  std::vector<Walker> walkers_;
  std::vector<Source> sources_;
};

bool near_crossing(const Roads& roads, int arm, double out) {
  return std::any_of(roads.crossings.begin(), roads.crossings.end(), [&](const Crossing& crossing) {
    return crossing.arm == arm && std::abs(crossing.out - out) < 10;
  });
}

// Along the edges with room for them.
void park(Recording& recording, Random& random) {
  for (size_t i = 0; i < recording.roads.arms.size(); ++i) {
    const Arm& arm = recording.roads.arms[i];
    for (const bool left : {true, false}) {
      if (!(left ? arm.left_parking : arm.right_parking)) continue;
      const double share = random.between(0.2, 0.9);
      for (double out = random.between(12, 18); out < arm.middle.length() - 8;
           out += random.between(6.3, 8)) {
        if (!random.chance(share) || near_crossing(recording.roads, static_cast<int>(i), out)) continue;
        const double off = (left ? arm.left_edge : arm.right_edge) - 1.3 + random.between(-0.15, 0.15);
        Track track;
        track.shape = car_shape(random);
        track.parked = true;
        State state;
        const Pose beside = arm.middle.at(out);
        state.motion.pose = {
            beside.ahead(0, left ? off : -off),
            wrapped(beside.heading + (left ? std::numbers::pi : 0) + random.between(-0.03, 0.03))};
        state.motion.pose.at = state.motion.pose.ahead(-track.shape.wheelbase / 2);
        track.states.assign(static_cast<size_t>(recording.steps), state);
        recording.tracks.push_back(std::move(track));
      }
    }
  }
}

void put_things(Recording& recording, Random& random) {
  for (size_t left = random.below(10); left > 0; --left) {
    const Arm& arm = recording.roads.arms[random.below(recording.roads.arms.size())];
    const Pose beside = arm.middle.at(random.between(5, 120));
    const bool on_left = random.chance(0.5);
    const double off = (on_left ? arm.left_edge : arm.right_edge) + 0.6;
    Thing thing;
    thing.type = static_cast<int>(random.below(4));
    thing.box = {{beside.ahead(0, on_left ? off : -off), beside.heading},
                 thing.type == 1 ? 2.0 : 0.4,
                 thing.type == 1 ? 0.5 : 0.4};
    recording.things.push_back(thing);
  }
}

}  // namespace

Box box_of(const Track& track, const State& state) {
  const Pose& pose = state.motion.pose;
  return {{pose.ahead(track.shape.wheelbase / 2), pose.heading}, track.shape.length, track.shape.width};
}

Point velocity_of(const Track& track, const State& state) {
  const Point ahead = direction(state.motion.pose.heading);
  return ahead * state.motion.speed + left_of(ahead) * (state.motion.yaw_rate * track.shape.wheelbase / 2);
}

Recording record(uint64_t seed, int steps) {
  Recording recording;
  recording.roads = make_roads(seed);
  recording.steps = steps;
  recording.begin = warm_up * time_step;
  Traffic traffic(seed, recording.roads);
  std::vector<Track> unseen;
  for (int step = 1; step < warm_up; ++step) {
    traffic.step((step - 1) * time_step);
    traffic.leave(0, unseen);
    traffic.forget_past();
  }
  for (int step = 0; step < steps; ++step) {
    traffic.step(recording.seconds(step) - time_step);
    traffic.keep(step);
    traffic.leave(step + 1, recording.tracks);
  }
  traffic.leave_all(recording.tracks);
  std::erase_if(recording.tracks, [](const Track& track) { return track.states.empty(); });
  Random random(seed, 3);
  park(recording, random);
  put_things(recording, random);
  return recording;
}

}  // namespace scenes
