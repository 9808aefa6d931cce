#include "diffusion_planner/roads.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "diffusion_planner/random.h"

namespace scenes {
namespace {

constexpr double half_median = 0.25, bicycle_width = 1.8, shoulder = 0.5;
constexpr double comfortable_turn = 1.9, gentle_braking = 1.4;  // m/s²

// How wide a road is, for two opposite arms.
struct Width {
  int lanes = 1;  // to the middle, and as many from it
  bool bicycles = false;
  double speed_limit = 0;
  double cars() const { return half_median + lanes * lane_width; }
};

struct Draft {
  Roads roads;
  std::vector<Width> widths;  // of each arm
  // Of each arm, from the middle line to the right, the lanes' numbers.
  std::vector<std::vector<int>> in, out;
  std::vector<int> bicycles_in, bicycles_out;  // -1 without
};

// Straight at first, then two bends, mostly against each other.
Path winding(const Pose& start, Random& random) {
  constexpr double sharpest = 1.0 / 45;
  const double total = random.between(200, 230);
  const double first_length = random.between(50, 80), second_length = random.between(50, 80);
  const double first_begin = random.between(15, 30);
  const double second_begin = first_begin + first_length + random.between(0, 25);
  const double first = random.sign() * random.between(0.2, 1) * sharpest;
  const double second = (random.chance(0.75) ? -first : first) * random.between(0.3, 1);
  std::vector<Point> points = {start.at};
  double heading = start.heading;
  const auto bend = [](double from_begin, double over) {
    if (from_begin < 0 || from_begin > over) return 0.0;
    return (1 - std::cos(2 * std::numbers::pi * from_begin / over)) / 2;
  };
  constexpr double step = 0.5;
  for (double at = step / 2; at < total; at += step) {
    heading += step * (first * bend(at - first_begin, first_length) +
                       second * bend(at - second_begin, second_length));
    points.push_back(points.back() + direction(heading) * step);
  }
  return Path(points);
}

// `left` of `middle`, all the way.
Path beside(const Path& middle, double left) {
  std::vector<Point> points;
  const int count = static_cast<int>(std::lround(middle.length())) + 1;
  for (int i = 0; i < count; ++i) {
    points.push_back(middle.at(middle.length() * i / (count - 1)).ahead(0, left));
  }
  return Path(points);
}

int add_lane(Roads& roads, Lane lane) {
  roads.lanes.push_back(std::move(lane));
  return static_cast<int>(roads.lanes.size()) - 1;
}

void add_lanes(Draft& draft, int arm) {
  const Arm& at = draft.roads.arms[static_cast<size_t>(arm)];
  const Width& width = draft.widths[static_cast<size_t>(arm)];
  const bool known = !(arm % 2 == 0 && width.lanes == 1);  // small main roads have no sign
  const auto add = [&](double offset, bool inwards) {
    Lane lane;
    lane.path = inwards ? beside(at.middle, offset).reversed() : beside(at.middle, -offset);
    lane.speed_limit = width.speed_limit;
    lane.limit_is_known = known;
    lane.approach = inwards;
    lane.arm = inwards ? arm : -1;
    return lane;
  };
  for (const bool inwards : {true, false}) {
    auto& numbers = (inwards ? draft.in : draft.out).emplace_back();
    for (int i = 0; i < width.lanes; ++i) {
      Lane lane = add(half_median + (i + 0.5) * lane_width, inwards);
      lane.left = i == 0 ? Line::solid : Line::dashed;
      lane.right = i + 1 < width.lanes ? Line::dashed : width.bicycles ? Line::solid : Line::border;
      numbers.push_back(add_lane(draft.roads, std::move(lane)));
    }
    int bicycles = -1;
    if (width.bicycles) {
      Lane lane = add(width.cars() + bicycle_width / 2, inwards);
      lane.for_bicycles = true;
      bicycles = add_lane(draft.roads, std::move(lane));
    }
    (inwards ? draft.bicycles_in : draft.bicycles_out).push_back(bicycles);
  }
}

void connect(Draft& draft, int from, int to, Turn turn) {
  auto& lanes = draft.roads.lanes;
  const Lane& before = lanes[static_cast<size_t>(from)];
  const Lane& after = lanes[static_cast<size_t>(to)];
  Lane lane;
  lane.path = joined(before.path.at(before.path.length()), after.path.at(0));
  lane.speed_limit = std::min(before.speed_limit, after.speed_limit);
  lane.limit_is_known = before.limit_is_known;
  lane.for_bicycles = before.for_bicycles;
  lane.arm = before.arm;
  lane.crosses = true;
  lane.turn = turn;
  lane.next = {to};
  const int added = add_lane(draft.roads, std::move(lane));
  lanes[static_cast<size_t>(from)].next.push_back(added);
}

// From each arm to each other one: left turns from and to the lane at the middle line, right turns from and
// to the outermost one, straight on from each lane to its own.
void connect_all(Draft& draft) {
  const Roads& roads = draft.roads;
  for (size_t i = 0; i < roads.arms.size(); ++i) {
    for (size_t j = 0; j < roads.arms.size(); ++j) {
      if (i == j) continue;
      const double inwards = roads.arms[i].middle.at(0).heading + std::numbers::pi;
      const double angle = wrapped(roads.arms[j].middle.at(0).heading - inwards);
      const bool straight = std::abs(angle) < std::numbers::pi / 4 || roads.arms.size() == 2;
      const auto &in = draft.in[i], &out = draft.out[j];
      if (straight) {
        for (size_t lane = 0; lane < std::min(in.size(), out.size()); ++lane) {
          connect(draft, in[lane], out[lane], Turn::straight);
        }
      } else if (angle > 0) {
        connect(draft, in.front(), out.front(), Turn::left);
      } else {
        connect(draft, in.back(), out.back(), Turn::right);
      }
      const int bicycles = draft.bicycles_in[i], away = draft.bicycles_out[j];
      if (bicycles >= 0 && away >= 0 && (straight || angle < 0)) {
        connect(draft, bicycles, away, straight ? Turn::straight : Turn::right);
      }
    }
  }
}

void find_conflicts(Roads& roads) {
  const auto count = static_cast<int>(roads.lanes.size());
  for (Lane& lane : roads.lanes) {
    for (const int one : lane.approach ? lane.next : std::vector<int>()) {
      for (const int other : lane.next) {
        if (one != other) roads.lanes[static_cast<size_t>(one)].siblings.push_back(other);
      }
    }
  }
  const auto meet = [](const Lane& a, const Lane& b) {
    const double room = a.for_bicycles || b.for_bicycles ? 2.4 : 2.9;
    return std::any_of(a.path.points().begin(), a.path.points().end(), [&](Point point) {
      return length(b.path.at(b.path.nearest(point)).at - point) < room;
    });
  };
  for (int i = 0; i < count; ++i) {
    Lane& one = roads.lanes[static_cast<size_t>(i)];
    if (!one.crosses) continue;
    for (int j = 0; j < count; ++j) {
      const Lane& other = roads.lanes[static_cast<size_t>(j)];
      const bool sibling = std::find(one.siblings.begin(), one.siblings.end(), j) != one.siblings.end();
      if (i != j && other.crosses && !sibling && meet(one, other)) one.conflicts.push_back(j);
    }
  }
}

void set_pace(Lane& lane) {
  const auto metres = static_cast<int>(std::ceil(lane.path.length()));
  lane.pace.resize(static_cast<size_t>(metres) + 1);
  double after = lane.speed_limit;
  for (int i = metres; i >= 0; --i) {
    const double bend = std::abs(lane.path.curvature(i));
    const double there = bend > 1e-4 ? std::sqrt(comfortable_turn / bend) : lane.speed_limit;
    after = std::min({lane.speed_limit, there, std::sqrt(after * after + 2 * gentle_braking)});
    lane.pace[static_cast<size_t>(i)] = after;
  }
}

// The road's edges along the arms, and from each arm's left one round the corner to the next arm's right one.
void add_borders(Roads& roads) {
  const size_t count = roads.arms.size();
  for (size_t i = 0; i < count; ++i) {
    const Arm &arm = roads.arms[i], &next = roads.arms[(i + 1) % count];
    const Path left = beside(arm.middle, arm.left_edge), right = beside(arm.middle, -arm.right_edge);
    roads.borders.push_back(left);
    roads.borders.push_back(right);
    const Path inwards = left.reversed(), outwards = beside(next.middle, -next.right_edge);
    roads.borders.push_back(joined(inwards.at(inwards.length()), outwards.at(0)));
  }
}

void add_stop_lines(Draft& draft) {
  Roads& roads = draft.roads;
  for (size_t i = 0; i < roads.arms.size(); ++i) {
    const Pose begin = roads.arms[i].middle.at(0);
    roads.stop_lines.push_back({begin.ahead(0, half_median), begin.ahead(0, draft.widths[i].cars())});
  }
  std::vector<Point> area;
  for (const Arm& arm : roads.arms) {
    area.push_back(arm.middle.at(0).ahead(0, -arm.right_edge));
    area.push_back(arm.middle.at(0).ahead(0, arm.left_edge));
  }
  roads.junction = area;
}

void add_crossing(Roads& roads, int number, double out) {
  const Arm& arm = roads.arms[static_cast<size_t>(number)];
  constexpr double half = 2, wait = 3.2;  // of the zebra along the road; where the front of a car stops
  const Pose middle = arm.middle.at(out);
  Crossing crossing;
  crossing.arm = number;
  crossing.out = out;
  constexpr double pavement = 1.5;
  crossing.walk =
      Path({middle.ahead(0, arm.left_edge + pavement), middle.ahead(0, -arm.right_edge - pavement)});
  crossing.area = {middle.ahead(half, arm.left_edge), middle.ahead(-half, arm.left_edge),
                   middle.ahead(-half, -arm.right_edge), middle.ahead(half, -arm.right_edge)};
  for (size_t i = 0; i < roads.lanes.size(); ++i) {
    const Lane& lane = roads.lanes[i];
    if (lane.crosses) continue;
    const double at = lane.path.nearest(middle.at);
    if (length(lane.path.at(at).at - middle.at) > std::max(arm.left_edge, arm.right_edge)) continue;
    crossing.stops.push_back({static_cast<int>(i), at - wait, at + wait});
  }
  roads.crossings.push_back(std::move(crossing));
}

std::vector<Width> draw_widths(size_t arms, Random& random) {
  const auto width = [&](int most) {
    constexpr std::array<double, 4> limits = {30 / 3.6, 40 / 3.6, 50 / 3.6, 60 / 3.6};
    Width drawn;
    drawn.lanes = 1 + static_cast<int>(random.below(static_cast<size_t>(most)));
    drawn.bicycles = random.chance(0.6);
    drawn.speed_limit = limits[random.below(3) + (drawn.lanes > 1 ? 1 : 0)];
    return drawn;
  };
  const Width main = width(3), side = width(arms == 4 ? 3 : 2);
  std::vector<Width> widths;
  for (size_t i = 0; i < arms; ++i) widths.push_back(arms == 2 || i % 2 == 0 ? main : side);
  return widths;
}

// Where each arm begins: the directions of a crossroads, somewhat bent.
std::vector<Pose> beginnings(size_t arms, double from_middle, Random& random) {
  const double turned = random.between(-std::numbers::pi, std::numbers::pi);
  std::vector<Pose> poses;
  for (size_t i = 0; i < arms; ++i) {
    const double even =
        arms == 2 ? static_cast<double>(i) * std::numbers::pi : static_cast<double>(i) * std::numbers::pi / 2;
    const double heading = turned + even + random.between(-1, 1) * (arms == 2 ? 0.35 : 0.12);
    poses.push_back({direction(heading) * from_middle, heading});
  }
  return poses;
}

}  // namespace

Roads make_roads(uint64_t seed) {
  Random random(seed, 1);
  Draft draft;
  const double kind = random.unit();
  const size_t arms = kind < 0.5 ? 4 : kind < 0.75 ? 3 : 2;
  draft.widths = draw_widths(arms, random);
  double widest = 0;
  for (size_t i = 0; i < arms; ++i) {
    const Width& width = draft.widths[i];
    Arm arm;
    arm.left_parking = random.chance(0.4), arm.right_parking = random.chance(0.4);
    const double paved = width.cars() + (width.bicycles ? bicycle_width : 0) + shoulder;
    arm.left_edge = paved + (arm.left_parking ? parking_width : 0);
    arm.right_edge = paved + (arm.right_parking ? parking_width : 0);
    widest = std::max({widest, arm.left_edge, arm.right_edge});
    draft.roads.arms.push_back(std::move(arm));
  }
  const std::vector<Pose> begin = beginnings(arms, 1.2 * widest + random.between(6, 9), random);
  for (size_t i = 0; i < arms; ++i) {
    draft.roads.arms[i].middle = winding(begin[i], random);
    add_lanes(draft, static_cast<int>(i));
  }
  connect_all(draft);
  find_conflicts(draft.roads);
  for (Lane& lane : draft.roads.lanes) set_pace(lane);
  add_borders(draft.roads);
  if (arms > 2) add_stop_lines(draft);
  for (size_t i = 0; i < arms; ++i) {
    if (random.chance(0.6)) add_crossing(draft.roads, static_cast<int>(i), random.between(50, 90));
  }
  draft.roads.green = random.between(6, 10);
  draft.roads.shift = random.between(0, 60);
  return std::move(draft.roads);
}

Light light(const Roads& roads, int arm, double seconds) {
  const auto arms = static_cast<double>(roads.arms.size());
  if (arms < 3 || arm < 0) return Light::none;
  const double turn = roads.green + yellow_seconds + all_red_seconds;
  double since = std::fmod(seconds + roads.shift - arm * turn, arms * turn);
  if (since < 0) since += arms * turn;
  if (since < roads.green) return Light::green;
  return since < roads.green + yellow_seconds ? Light::yellow : Light::red;
}

}  // namespace scenes
