// What moves in a drawn world, recorded ten times a second.
#pragma once
#include <cstdint>
#include <vector>

#include "diffusion_planner/drivers.h"
#include "diffusion_planner/roads.h"

namespace scenes {

enum class Kind { vehicle, pedestrian, bicycle };
enum class Indicator { off = 1, left = 2, right = 3 };  // as in FrameBatch

struct State {
  Motion motion;
  Indicator indicator = Indicator::off;
  int leg = 0;       // where on the route
  double along = 0;  // how far along its lane
};

/// One road user from when it comes to when it leaves.
struct Track {
  Kind kind = Kind::vehicle;
  Shape shape;
  bool parked = false;
  std::vector<int> route;  // lanes; none of pedestrians and parked cars
  int first = 0;           // step of states[0]
  std::vector<State> states;

  /// Null when it is not there.
  const State* at(int step) const {
    const int index = step - first;
    return index < 0 || index >= static_cast<int>(states.size()) ? nullptr
                                                                 : &states[static_cast<size_t>(index)];
  }
};

Box box_of(const Track& track, const State& state);
/// Of the middle of its box.
Point velocity_of(const Track& track, const State& state);

/// A thing on the ground.
struct Thing {
  Box box;
  int type = 0;  // of four
};

struct Recording {
  Roads roads;
  double begin = 0;  // s, of step 0
  int steps = 0;
  std::vector<Track> tracks;
  std::vector<Thing> things;

  double seconds(int step) const { return begin + step * time_step; }
};

/// Lets traffic come into an empty world until it is full, then records `steps` steps.
Recording record(uint64_t seed, int steps);

}  // namespace scenes
