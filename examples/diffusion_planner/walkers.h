// Pedestrians: along the pavements, some of them over a zebra crossing when nobody has to brake hard.
#pragma once
#include <functional>

#include "diffusion_planner/random.h"
#include "diffusion_planner/traffic.h"

namespace scenes {

struct Walker {
  Track track;
  Path path;
  double pace = 1.3, along = 0;
  int crossing = -1;              // of Roads, or none
  double curb = 0, far_side = 0;  // of the path: where the road begins and ends

  bool on_road() const { return crossing >= 0 && along > curb && along < far_side; }
  bool gone() const { return along >= path.length(); }
};

Walker make_walker(const Roads& roads, Random& random);

/// One time step; `is_free` says whether one can step on a crossing.
State walk(Walker& walker, const std::function<bool(int crossing)>& is_free);

}  // namespace scenes
