#include "diffusion_planner/frame_map.h"

#include <algorithm>
#include <cmath>

#include "diffusion_planner/frames.h"

namespace scenes {
namespace {

// A piece of a lane, as long as the lanes of a map are.
struct Piece {
  int lane = 0;
  double begin = 0, end = 0;
};

std::vector<Piece> pieces_of(const Lane& lane, int number) {
  constexpr double longest = 45;
  const double length = lane.path.length();
  const int count = lane.crosses ? 1 : static_cast<int>(std::ceil(length / longest));
  std::vector<Piece> pieces;
  for (int i = 0; i < count; ++i) pieces.push_back({number, length * i / count, length * (i + 1) / count});
  return pieces;
}

// What is to be listed by its distance.
struct Seen {
  double distance = 0;
  size_t index = 0;
};

/// Those up to `farthest`, the nearest ones first, at most `most`.
std::vector<size_t> nearest(std::vector<Seen> all, double farthest, int64_t most) {
  std::erase_if(all, [&](const Seen& one) { return one.distance > farthest; });
  std::sort(all.begin(), all.end(), [](const Seen& a, const Seen& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.index < b.index;
  });
  if (all.size() > static_cast<size_t>(most)) all.resize(static_cast<size_t>(most));
  std::vector<size_t> indices;
  for (const Seen& one : all) indices.push_back(one.index);
  return indices;
}

double distance(const Pose& ego, const std::vector<Point>& points) {
  double min_distance = length(points.front() - ego.at);
  for (const Point point : points) min_distance = std::min(min_distance, length(point - ego.at));
  return min_distance;
}

void put_point(float* to, Point point) {
  to[0] = static_cast<float>(point.x);
  to[1] = static_cast<float>(point.y);
}

void put_lane(float* to, const Lane& lane, const Piece& piece, Light seen, const Pose& ego, int64_t points,
              int64_t features) {
  const Pose turned = {{}, ego.heading};
  const auto place = [&](int64_t i) {
    const double part = static_cast<double>(i) / static_cast<double>(points - 1);
    return lane.path.at(piece.begin + (piece.end - piece.begin) * part);
  };
  const bool upstream = features < 13 + 20;
  const int64_t lights = upstream ? 4 : 5;
  for (int64_t i = 0; i < points; ++i) {
    float* const values = to + i * features;
    const Pose pose = place(i);
    const Point left = turned.sees(left_of(direction(pose.heading)) * (lane_width / 2));
    put_point(values, ego.sees(pose.at));
    if (i + 1 < points) put_point(values + 2, turned.sees(place(i + 1).at - pose.at));
    put_point(values + 4, left);
    put_point(values + 6, left * -1);
    values[8 + (seen == Light::none ? lights - 1 : static_cast<int64_t>(seen))] = 1;
    if (upstream) continue;
    values[13 + static_cast<int64_t>(lane.left)] = 1;
    values[23 + static_cast<int64_t>(lane.right)] = 1;
  }
}

// One of the two arrays of lanes.
struct LaneArrays {
  at::Tensor lanes, limits, has_limit;
};

void put_lanes(const Roads& roads, double seconds, const Pose& ego, const std::vector<Piece>& pieces,
               const LaneArrays& arrays, int64_t row) {
  const int64_t points = arrays.lanes.size(2), features = arrays.lanes.size(3);
  float* to = values_of(arrays.lanes, row);
  float* const limits = values_of(arrays.limits, row);
  bool* const has_limit = arrays.has_limit.mutable_data_ptr<bool>() + row * arrays.has_limit.size(1);
  for (size_t i = 0; i < pieces.size(); ++i, to += points * features) {
    const Lane& lane = roads.lanes[static_cast<size_t>(pieces[i].lane)];
    const Light seen = lane.crosses ? light(roads, lane.arm, seconds) : Light::none;
    put_lane(to, lane, pieces[i], seen, ego, points, features);
    has_limit[i] = lane.limit_is_known;
    limits[i] = lane.limit_is_known ? static_cast<float>(lane.speed_limit) : 0;
  }
}

std::vector<Piece> lanes_around(const Roads& roads, const Pose& ego, int64_t most) {
  std::vector<Piece> all, chosen;
  std::vector<Seen> seen;
  for (size_t i = 0; i < roads.lanes.size(); ++i) {
    if (roads.lanes[i].for_bicycles) continue;
    for (const Piece& piece : pieces_of(roads.lanes[i], static_cast<int>(i))) {
      seen.push_back({distance(ego, roads.lanes[i].path.sampled(20, piece.begin, piece.end)), all.size()});
      all.push_back(piece);
    }
  }
  for (const size_t index : nearest(std::move(seen), seen_lanes, most)) chosen.push_back(all[index]);
  return chosen;
}

std::vector<Piece> route_ahead(const Roads& roads, const Track& track, const State& state, int64_t most) {
  std::vector<Piece> ahead;
  for (auto leg = static_cast<size_t>(state.leg); leg < track.route.size(); ++leg) {
    const int number = track.route[leg];
    for (const Piece& piece : pieces_of(roads.lanes[static_cast<size_t>(number)], number)) {
      const bool passed = leg == static_cast<size_t>(state.leg) && piece.end <= state.along;
      if (!passed && static_cast<int64_t>(ahead.size()) < most) ahead.push_back(piece);
    }
  }
  return ahead;
}

// Points with flags behind them.
struct Shown {
  std::vector<Point> points;
  std::vector<float> flags;
};

void put_shown(const std::vector<Shown>& all, const Pose& ego, const at::Tensor& tensor, int64_t row) {
  std::vector<Seen> seen;
  for (size_t i = 0; i < all.size(); ++i) seen.push_back({distance(ego, all[i].points), i});
  float* to = values_of(tensor, row);
  for (const size_t index : nearest(std::move(seen), seen_things, tensor.size(1))) {
    for (const Point point : all[index].points) {
      put_point(to, ego.sees(point));
      std::copy(all[index].flags.begin(), all[index].flags.end(), to + 2);
      to += tensor.size(3);
    }
  }
}

/// `count` points round a polygon, the first one not repeated.
std::vector<Point> outline(const std::vector<Point>& polygon, int count) {
  std::vector<Point> closed = polygon;
  closed.push_back(polygon.front());
  const Path path(closed);
  return path.sampled(count, 0, path.length() * (count - 1) / count);
}

void put_line_strings(const Roads& roads, const Pose& ego, const at::Tensor& tensor, int64_t row) {
  constexpr double longest = 40;
  const auto points = static_cast<int>(tensor.size(2));
  std::vector<Shown> all;
  for (const auto& line : roads.stop_lines) {
    all.push_back({Path({line[0], line[1]}).sampled(points, 0, length(line[1] - line[0])), {1, 0}});
  }
  for (const Path& border : roads.borders) {
    const int count = static_cast<int>(std::ceil(border.length() / longest));
    for (int i = 0; i < count; ++i) {
      all.push_back(
          {border.sampled(points, border.length() * i / count, border.length() * (i + 1) / count), {0, 1}});
    }
  }
  put_shown(all, ego, tensor, row);
}

void put_polygons(const Roads& roads, const Pose& ego, const at::Tensor& tensor, int64_t row) {
  const auto points = static_cast<int>(tensor.size(2));
  std::vector<Shown> all;
  if (roads.junction) all.push_back({outline(*roads.junction, points), {1}});
  for (const Crossing& crossing : roads.crossings) all.push_back({outline(crossing.area, points), {0}});
  put_shown(all, ego, tensor, row);
}

void put_things(const std::vector<Thing>& things, const Pose& ego, const at::Tensor& tensor, int64_t row) {
  std::vector<Seen> seen;
  for (size_t i = 0; i < things.size(); ++i) seen.push_back({length(things[i].box.center.at - ego.at), i});
  float* to = values_of(tensor, row);
  for (const size_t index : nearest(std::move(seen), seen_things, tensor.size(1))) {
    const Thing& thing = things[index];
    put_point(to, ego.sees(thing.box.center.at));
    put_point(to + 2, direction(thing.box.center.heading - ego.heading));
    put_point(to + 4, {thing.box.width, thing.box.length});
    to[6 + thing.type] = 1;
    to += tensor.size(2);
  }
}

}  // namespace

float* values_of(const at::Tensor& tensor, int64_t row) {
  return tensor.mutable_data_ptr<float>() + row * (tensor.numel() / tensor.size(0));
}

void put_map(const Recording& recording, double seconds, const Pose& ego, const Track& track,
             const State& state, const dtk::diffusion_planner::FrameBatch& batch, int64_t row) {
  const Roads& roads = recording.roads;
  put_lanes(roads, seconds, ego, lanes_around(roads, ego, batch.lanes.size(1)),
            {batch.lanes, batch.lanes_speed_limit, batch.lanes_has_speed_limit}, row);
  put_lanes(roads, seconds, ego, route_ahead(roads, track, state, batch.route_lanes.size(1)),
            {batch.route_lanes, batch.route_lanes_speed_limit, batch.route_lanes_has_speed_limit}, row);
  put_things(recording.things, ego, batch.static_objects, row);
  if (batch.polygons.defined()) put_polygons(roads, ego, batch.polygons, row);
  if (batch.line_strings.defined()) put_line_strings(roads, ego, batch.line_strings, row);
}

}  // namespace scenes
