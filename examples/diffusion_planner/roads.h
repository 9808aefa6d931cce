// The still part of a drawn world: roads that bend, where they meet, and whose turn it is there.
//
// Up to four roads ("arms") lead away from the middle, each with lanes to it and from it; traffic keeps to
// the right. Three or four meet at traffic lights, two are one road without lights.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "diffusion_planner/geometry.h"

namespace scenes {

enum class Light { green, yellow, red, none };
enum class Turn { straight, left, right };
enum class Line { none, dashed, solid, border };

inline constexpr double lane_width = 3.5;

struct Lane {
  Path path;  // in the direction of traffic
  double speed_limit = 0;
  bool limit_is_known = true;
  bool for_bicycles = false;
  int arm = -1;           // whose traffic comes along here: its lanes to the middle and across it
  bool approach = false;  // leads to the middle, and ends at a stop line
  bool crosses = false;   // leads across the middle
  Turn turn = Turn::straight;
  Line left = Line::none, right = Line::none;
  std::vector<int> next;       // where one can go on; of an approach for cars one lane at least
  std::vector<int> siblings;   // of one that crosses: the others from its approach
  std::vector<int> conflicts;  // of one that crosses: the others that it meets, but for siblings
  std::vector<double> pace;    // m/s at each metre: what bends here allow, with gentle braking before them
};

/// A zebra crossing of one arm.
struct Crossing {
  int arm = 0;
  double out = 0;  // distance of its middle from the arm's beginning
  Path walk;       // from the arm's left pavement to its right one
  std::vector<Point> area;
  struct Stop {
    int lane = 0;
    double at = 0, end = 0;  // of the lane: where to wait, and where the crossing is passed
  };
  std::vector<Stop> stops;
};

struct Arm {
  Path middle;                           // from the crossing outwards
  double left_edge = 0, right_edge = 0;  // of the road, from `middle`, both above 0
  bool left_parking = false, right_parking = false;
};

struct Roads {
  std::vector<Arm> arms;
  std::vector<Lane> lanes;
  std::vector<Path> borders;
  std::vector<std::array<Point, 2>> stop_lines;
  std::optional<std::vector<Point>> junction;  // where three or four arms meet
  std::vector<Crossing> crossings;
  double green = 0, shift = 0;  // s: how long each arm has green, and when that begins
};

inline constexpr double yellow_seconds = 3.5, all_red_seconds = 2;
inline constexpr double parking_width = 2.4;

Roads make_roads(uint64_t seed);

/// What the arm's traffic sees: one arm after the other has green.
Light light(const Roads& roads, int arm, double seconds);

}  // namespace scenes
