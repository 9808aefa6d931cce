#include "diffusion_planner/walkers.h"

#include <algorithm>

namespace scenes {
namespace {

/// Along one side of an arm, `off` beside the road; `side` is 1 on the left of its middle.
void add_pavement(std::vector<Point>& points, const Arm& arm, double side, double off, double begin,
                  double end) {
  const double edge = side > 0 ? arm.left_edge : arm.right_edge;
  constexpr int count = 60;
  for (int i = 0; i < count; ++i) {
    points.push_back(arm.middle.at(begin + (end - begin) * i / (count - 1)).ahead(0, side * (edge + off)));
  }
}

}  // namespace

Walker make_walker(const Roads& roads, Random& random) {
  Walker walker;
  walker.track.kind = Kind::pedestrian;
  walker.track.shape = {0, random.between(0.5, 0.7), random.between(0.5, 0.7)};
  walker.pace = random.between(1.1, 1.8);
  const double side = random.sign(), off = random.between(0.8, 2.5);
  const double away = random.between(20, 60) * random.sign();
  std::vector<Point> points;
  if (!roads.crossings.empty() && random.chance(0.5)) {
    walker.crossing = static_cast<int>(random.below(roads.crossings.size()));
    const Crossing& crossing = roads.crossings[static_cast<size_t>(walker.crossing)];
    const Arm& arm = roads.arms[static_cast<size_t>(crossing.arm)];
    const double shifted = crossing.out + random.between(-1.2, 1.2);
    const double back = random.between(5, 30) * random.sign();
    add_pavement(points, arm, side, off, shifted + back, shifted);
    walker.curb = Path(points).length() + off - 0.3;
    walker.far_side = walker.curb + arm.left_edge + arm.right_edge + 0.6;
    add_pavement(points, arm, -side, off, shifted, shifted + away);
  } else {
    const Arm& arm = roads.arms[random.below(roads.arms.size())];
    const double begin = random.between(5, 140);
    add_pavement(points, arm, side, off, begin, std::max(2.0, begin + away));
  }
  walker.path = Path(points);
  return walker;
}

State walk(Walker& walker, const std::function<bool(int)>& is_free) {
  State state;
  const double next = walker.along + walker.pace * time_step;
  const bool steps_on = walker.crossing >= 0 && walker.along <= walker.curb && next > walker.curb;
  const bool waits = steps_on && !is_free(walker.crossing);
  if (!waits) walker.along = next;
  state.motion.speed = waits ? 0 : walker.pace;
  state.motion.pose = walker.path.at(walker.along);
  return state;
}

}  // namespace scenes
