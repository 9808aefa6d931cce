// Drawn worlds obey physics and the rules of the road.
#include <algorithm>
#include <cmath>
#include <set>

#include "diffusion_planner/traffic.h"
#include "support/catch.h"

namespace {

using namespace scenes;

constexpr uint64_t first_seed = 40;
constexpr int steps = 600;

const std::vector<Recording>& worlds() {
  static const std::vector<Recording> all = [] {
    std::vector<Recording> drawn;
    for (uint64_t seed = first_seed; seed < first_seed + 16; ++seed) drawn.push_back(record(seed, steps));
    return drawn;
  }();
  return all;
}

bool is_driven(const Track& track) {
  return !track.route.empty();
}

const Lane& lane_of(const Recording& world, const Track& track, const State& state) {
  return world.roads.lanes[static_cast<size_t>(track.route[static_cast<size_t>(state.leg)])];
}

/// use(world, track, step, state, next state).
template <class Use>
void for_each_move(const Use& use) {
  for (const Recording& world : worlds()) {
    for (const Track& track : world.tracks) {
      for (size_t i = 0; i + 1 < track.states.size(); ++i) {
        use(world, track, track.first + static_cast<int>(i), track.states[i], track.states[i + 1]);
      }
    }
  }
}

}  // namespace

TEST_CASE("worlds: nobody is where somebody else is, though many are near") {
  int64_t overlapping = 0, near = 0;
  for (const Recording& world : worlds()) {
    for (int step = 0; step < steps; step += 2) {
      std::vector<std::pair<Box, bool>> boxes;  // and whether it is driven
      for (const Track& track : world.tracks) {
        const State* const now = track.at(step);
        if (now != nullptr) boxes.emplace_back(box_of(track, *now), is_driven(track));
      }
      for (size_t i = 0; i < boxes.size(); ++i) {
        for (size_t j = i + 1; j < boxes.size(); ++j) {
          const bool counts = boxes[i].second || boxes[j].second;
          const Point between = boxes[i].first.center.at - boxes[j].first.center.at;
          if (!counts || dot(between, between) > 100) continue;
          overlapping += overlap(boxes[i].first, boxes[j].first) ? 1 : 0;
          Box wider = boxes[i].first;
          wider.width += 3, wider.length += 3;
          near += overlap(wider, boxes[j].first) ? 1 : 0;
        }
      }
    }
  }
  CHECK(overlapping == 0);
  CHECK(near > 10000);
}

TEST_CASE("worlds: speeds and accelerations are those of calm drivers, and they use them") {
  double fastest = 0, hardest = 0, strongest = 0, sideways = 0;
  int64_t hard = 0, all = 0;
  for_each_move([&](const Recording&, const Track& track, int, const State& state, const State&) {
    if (!is_driven(track)) return;
    const Motion& motion = state.motion;
    const double limit = track.kind == Kind::bicycle ? 6.0 : 60 / 3.6 * 1.05;
    CHECK(motion.speed <= limit + 0.8);
    CHECK(motion.speed >= 0);
    fastest = std::max(fastest, motion.speed);
    hardest = std::min(hardest, motion.acceleration);
    strongest = std::max(strongest, motion.acceleration);
    sideways = std::max(sideways, std::abs(motion.speed * motion.yaw_rate));
    hard += motion.acceleration < -3.5 ? 1 : 0;
    ++all;
  });
  CHECK(fastest > 14);
  CHECK((hardest >= -hardest_braking - 1e-9 && hardest < -2));
  CHECK((strongest <= hardest_start + 1e-9 && strongest > 1.2));
  CHECK((sideways < 3 && sideways > 1.5));
  CHECK(hard < all / 1000);
}

TEST_CASE("worlds: where one is follows from where one was, by speed and yaw rate") {
  double way = 0, turned = 0, jerk = 0, off = 0;
  for_each_move([&](const Recording& world, const Track& track, int, const State& state, const State& next) {
    if (!is_driven(track)) return;
    const Motion &a = state.motion, &b = next.motion;
    const double mean = (a.speed + b.speed) / 2;
    way = std::max(way, std::abs(length(b.pose.at - a.pose.at) - mean * time_step));
    turned = std::max(turned, std::abs(wrapped(b.pose.heading - a.pose.heading) - b.yaw_rate * time_step));
    jerk = std::max(jerk, std::abs(b.acceleration - a.acceleration));
    CHECK(b.acceleration == Approx((b.speed - a.speed) / time_step).margin(1e-9));
    CHECK(std::abs(b.yaw_rate * track.shape.wheelbase - mean * std::tan(b.steering)) < 1e-9);
    off = std::max(off, length(lane_of(world, track, state).path.at(state.along).at - a.pose.at));
  });
  CHECK(way < 1e-6);
  CHECK(turned < 1e-9);
  CHECK(jerk < 6);
  CHECK((off < 0.5 && off > 0.01));
}

TEST_CASE("worlds: nobody passes a stop line at red, some wait there, and some pass at green and yellow") {
  int64_t passed[4] = {}, waiting = 0;
  for_each_move([&](const Recording& world, const Track& track, int step, const State& state,
                    const State& next) {
    if (!is_driven(track) || !lane_of(world, track, state).approach) return;
    const Lane& lane = lane_of(world, track, state);
    const double line = lane.path.length(), front = track.shape.front();
    const double before = state.along + front;
    const double after = (next.leg > state.leg ? line + next.along : next.along) + front;
    const Light seen = light(world.roads, lane.arm, world.seconds(step));
    if (before <= line && after > line) ++passed[static_cast<int>(seen)];
    waiting += seen == Light::red && before > line - 3 && before <= line && state.motion.speed == 0 ? 1 : 0;
  });
  CHECK(passed[static_cast<int>(Light::red)] == 0);
  CHECK(passed[static_cast<int>(Light::green)] > 100);
  CHECK(passed[static_cast<int>(Light::yellow)] > 5);
  CHECK(passed[static_cast<int>(Light::none)] > 20);
  CHECK(waiting > 1000);
}

TEST_CASE("worlds: one arm after the other has green, then yellow, then all have red") {
  for (const Recording& world : worlds()) {
    const Roads& roads = world.roads;
    const auto arms = static_cast<int>(roads.arms.size());
    if (arms == 2) {
      CHECK(light(roads, 0, 5) == Light::none);
      continue;
    }
    std::set<int> had_green;
    for (int tenth = 0; tenth < 1000; ++tenth) {
      int open = 0;
      for (int arm = 0; arm < arms; ++arm) {
        const Light now = light(roads, arm, tenth * 0.1), next = light(roads, arm, (tenth + 1) * 0.1);
        open += now == Light::red ? 0 : 1;
        if (now == Light::green) had_green.insert(arm);
        CHECK((next == now || static_cast<int>(next) == (static_cast<int>(now) + 1) % 3));
      }
      CHECK(open <= 1);
    }
    CHECK(had_green.size() == static_cast<size_t>(arms));
  }
}

TEST_CASE("worlds: there is some of everything") {
  std::set<size_t> arms, lanes;
  std::set<Indicator> indicators;
  int64_t kinds[3] = {}, parked = 0, on_zebra = 0, things = 0;
  double sharpest = 0;
  for (const Recording& world : worlds()) {
    arms.insert(world.roads.arms.size());
    lanes.insert(world.roads.lanes.size());
    things += static_cast<int64_t>(world.things.size());
    for (const Arm& arm : world.roads.arms) {
      for (double at = 0; at < arm.middle.length(); at += 5) {
        sharpest = std::max(sharpest, std::abs(arm.middle.curvature(at)));
      }
    }
    for (const Track& track : world.tracks) {
      ++(track.parked ? parked : kinds[static_cast<int>(track.kind)]);
      for (const State& state : track.states) {
        indicators.insert(state.indicator);
        if (track.kind != Kind::pedestrian) continue;
        for (const Crossing& crossing : world.roads.crossings) {
          const Path& walk = crossing.walk;
          const Point at = state.motion.pose.at, nearest = walk.at(walk.nearest(at)).at;
          on_zebra += length(at - nearest) < 1.3 && length(at - walk.at(walk.length() / 2).at) < 3 ? 1 : 0;
        }
      }
    }
  }
  CHECK(arms == std::set<size_t>{2, 3, 4});
  CHECK(lanes.size() > 5);
  CHECK(indicators.size() == 3);
  for (const int64_t count : kinds) CHECK(count > 30);
  CHECK(parked > 100);
  CHECK(on_zebra > 300);
  CHECK(things > 20);
  CHECK((sharpest > 1.0 / 80 && sharpest < 1.0 / 40));
}

TEST_CASE("worlds: the same seed is the same world, another seed is another one") {
  const auto places = [](const Recording& world) {
    std::vector<double> all;
    for (const Track& track : world.tracks) {
      for (const State& state : track.states) {
        all.push_back(state.motion.pose.at.x), all.push_back(state.motion.speed);
      }
    }
    return all;
  };
  CHECK(places(record(first_seed, 100)) == places(record(first_seed, 100)));
  CHECK(places(record(first_seed, 100)) != places(record(first_seed + 1, 100)));
}
