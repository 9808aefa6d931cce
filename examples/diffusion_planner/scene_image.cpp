#include "diffusion_planner/scene_image.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "diffusion_planner/canvas.h"

namespace scenes {
namespace {

constexpr Color ground = {233, 235, 226}, asphalt = {196, 199, 204}, paint = {250, 250, 250},
                curb = {92, 88, 84}, route_tint = {112, 160, 224}, moving = {52, 92, 150},
                resting = {132, 140, 152}, on_foot = {226, 118, 20}, cycling = {130, 84, 180},
                thing_color = {150, 110, 60}, ego_color = {200, 30, 40}, truth = {20, 140, 60},
                prediction = {214, 20, 160}, ink = {40, 40, 44};
constexpr std::array<Color, 3> lights = {Color{30, 160, 70}, Color{240, 180, 0}, Color{214, 40, 40}};

// The rows of one sample's array; the last dimension holds the features.
class Rows {
 public:
  Rows(const at::Tensor& all, int64_t row) {
    if (all.defined()) values_ = all.select(0, row).to(at::kFloat).contiguous();
  }
  int64_t size(int64_t dimension) const { return values_.defined() ? values_.size(dimension) : 0; }
  int64_t features() const { return size(values_.defined() ? values_.dim() - 1 : 0); }
  /// Of row `i`, counted over all dimensions but the last.
  const float* at(int64_t i) const { return values_.const_data_ptr<float>() + i * values_.size(-1); }
  bool is_there(int64_t i) const {
    return std::any_of(at(i), at(i) + values_.size(-1), [](float value) { return value != 0; });
  }

 private:
  at::Tensor values_;
};

Point point(const float* values) {
  return {values[0], values[1]};
}

// Points in metres on the canvas.
class Painter {
 public:
  Painter(int pixels, double reach)
      : canvas(pixels, pixels, ground), scale(pixels / (2 * reach)), middle_(pixels / 2.0) {}

  Point seen(Point place) const { return {middle_ - place.y * scale, middle_ - place.x * scale}; }
  std::vector<Point> seen(std::vector<Point> places) const {
    for (Point& place : places) place = seen(place);
    return places;
  }
  /// A line of metres' width.
  void road(const std::vector<Point>& places, double metres, Color color, double opacity) {
    canvas.stroke(seen(places), metres * scale, color, opacity);
  }
  /// A line of pixels' width.
  void line(const std::vector<Point>& places, double pixels, Color color, double opacity = 1) {
    canvas.stroke(seen(places), pixels, color, opacity);
  }
  void box(const Box& shape, Color color) {
    const auto edge = corners(shape);
    canvas.fill(seen({edge.begin(), edge.end()}), color);
  }

  Canvas canvas;
  const double scale;  // pixels a metre

 private:
  const double middle_;
};

std::vector<Point> points_of(const Rows& rows, int64_t index, int64_t offset = 0, double factor = 0) {
  std::vector<Point> points;
  for (int64_t i = 0; i < rows.size(1); ++i) {
    const float* const values = rows.at(index * rows.size(1) + i);
    const Point place = point(values);
    points.push_back(offset == 0 ? place : place + point(values + offset) * factor);
  }
  return points;
}

// Of one of two one-hots of line types; -1 where there is none.
int line_type(const float* flags) {
  const float* const found = std::find(flags, flags + 10, 1.0F);
  return found == flags + 10 ? -1 : static_cast<int>(found - flags);
}

void paint_bounds(Painter& painter, const Rows& lanes, int64_t lane) {
  const float* const first = lanes.at(lane * lanes.size(1));
  const bool typed = lanes.features() >= 33;
  for (const auto& [offset, flags] : {std::pair{4, 13}, std::pair{6, 23}}) {
    const int type = typed ? line_type(first + flags) : 2;
    const std::vector<Point> bound = points_of(lanes, lane, offset, 1);
    if (type == 1) {
      painter.canvas.stroke_dashed(painter.seen(bound), 1.5, 3 * painter.scale, paint);
    } else if (type > 1) {
      painter.line(bound, 1.5, paint);
    }
  }
}

void paint_light(Painter& painter, const Rows& lanes, int64_t lane) {
  const float* const first = lanes.at(lane * lanes.size(1));
  for (size_t i = 0; i < lights.size(); ++i) {
    if (first[8 + i] == 1) painter.line(points_of(lanes, lane), 2, lights[i], 0.75);
  }
}

template <class Use>
void for_each_lane(const Rows& lanes, const Use& use) {
  for (int64_t i = 0; i < lanes.size(0); ++i) {
    if (lanes.is_there(i * lanes.size(1))) use(i);
  }
}

// Lanes that go on from each other in one stroke: tints that overlap are darker.
void paint_route(Painter& painter, const Rows& route) {
  std::vector<Point> way;
  const auto paint_way = [&] {
    if (!way.empty()) painter.road(way, 2.4, route_tint, 0.4);
  };
  for_each_lane(route, [&](int64_t i) {
    const std::vector<Point> lane = points_of(route, i);
    if (!way.empty() && length(lane.front() - way.back()) > 1) {
      paint_way();
      way.clear();
    }
    way.insert(way.end(), lane.begin(), lane.end());
  });
  paint_way();
}

// Stripes across the longer side of what is outlined.
void paint_zebra(Painter& painter, const std::vector<Point>& outline) {
  Point middle, along;
  for (const Point place : outline) middle = middle + place * (1.0 / static_cast<double>(outline.size()));
  for (const Point place : outline) {
    if (length(place - middle) > length(along)) along = place - middle;
  }
  // The farthest places are corners; the mean of the two at one end is the middle of that end.
  Point end;
  int count = 0;
  for (const Point place : outline) {
    if (length(place - middle) < 0.97 * length(along) || dot(place - middle, along) < 0) continue;
    end = end + place - middle, ++count;
  }
  const double half = length(end) / count;
  const Point unit = end * (1 / length(end)), side = left_of(unit);
  double wide = 0;
  for (const Point place : outline) wide = std::max(wide, std::abs(dot(place - middle, side)));
  for (double at = -half + 0.3; at + 0.5 < half; at += 1) {
    const Point a = middle + unit * at, b = middle + unit * (at + 0.5);
    painter.canvas.fill(painter.seen({a + side * wide, b + side * wide, b - side * wide, a - side * wide}),
                        paint, 0.9);
  }
}

void paint_map(Painter& painter, const dtk::diffusion_planner::FrameBatch& batch, int64_t row) {
  const Rows lanes(batch.lanes, row), route(batch.route_lanes, row), polygons(batch.polygons, row),
      lines(batch.line_strings, row);
  const auto is_there = [](const Rows& rows, int64_t i) { return rows.is_there(i * rows.size(1)); };
  for (int64_t i = 0; i < polygons.size(0); ++i) {
    const bool junction = is_there(polygons, i) && polygons.at(i * polygons.size(1))[2] > 0.5F;
    if (junction) painter.canvas.fill(painter.seen(points_of(polygons, i)), asphalt);
  }
  for_each_lane(lanes, [&](int64_t i) { painter.road(points_of(lanes, i), 3.8, asphalt, 1); });
  for_each_lane(route, [&](int64_t i) { painter.road(points_of(route, i), 3.8, asphalt, 1); });
  paint_route(painter, route);
  for (int64_t i = 0; i < polygons.size(0); ++i) {
    const bool zebra = is_there(polygons, i) && polygons.at(i * polygons.size(1))[2] < 0.5F;
    if (zebra) paint_zebra(painter, points_of(polygons, i));
  }
  for_each_lane(lanes, [&](int64_t i) { paint_bounds(painter, lanes, i); });
  for (int64_t i = 0; i < lines.size(0); ++i) {
    if (!is_there(lines, i)) continue;
    const bool border = lines.at(i * lines.size(1))[3] > 0.5F;
    painter.line(points_of(lines, i), border ? 2.5 : 3.5, border ? curb : paint);
  }
  for_each_lane(lanes, [&](int64_t i) { paint_light(painter, lanes, i); });
}

// A body with a lighter windscreen towards where it heads.
void paint_vehicle(Painter& painter, const Box& box, Color color) {
  painter.box(box, color);
  const double ahead = box.length / 2, left = box.width / 2;
  painter.canvas.fill(painter.seen({box.center.ahead(ahead, 0), box.center.ahead(0.1 * ahead, 0.8 * left),
                                    box.center.ahead(0.1 * ahead, -0.8 * left)}),
                      paint, 0.85);
}

void paint_traffic(Painter& painter, const dtk::diffusion_planner::FrameBatch& batch, int64_t row) {
  const Rows things(batch.static_objects, row), past(batch.neighbor_agents_past, row),
      future(batch.neighbor_agents_future, row);
  for (int64_t i = 0; i < things.size(0); ++i) {
    if (!things.is_there(i)) continue;
    const float* const v = things.at(i);
    painter.box({{point(v), std::atan2(v[3], v[2])}, std::max(v[5], 0.8F), std::max(v[4], 0.8F)}, thing_color);
  }
  for (int64_t i = 0; i < past.size(0); ++i) {
    const int64_t now = i * past.size(1) + past.size(1) - 1;
    if (!past.is_there(now)) continue;
    const float* const v = past.at(now);
    const Color color = v[9] == 1                       ? on_foot
                        : v[10] == 1                    ? cycling
                        : std::hypot(v[4], v[5]) > 0.3F ? moving
                                                        : resting;
    std::vector<Point> way = {point(v)};
    for (int64_t k = 0; i < future.size(0) && k < future.size(1); ++k) {
      if (!future.is_there(i * future.size(1) + k)) break;
      way.push_back(point(future.at(i * future.size(1) + k)));
    }
    painter.line(way, 1.5, color, 0.6);
    const Box box = {{point(v), std::atan2(v[3], v[2])}, v[7], v[6]};
    if (v[9] == 1) {
      painter.canvas.disc(painter.seen(box.center.at), std::max(3.0, 0.4 * painter.scale), color);
    } else {
      paint_vehicle(painter, box, color);
    }
  }
}

// From the ego vehicle, or where the first step is, on.
void paint_path(Painter& painter, const Rows& path, int64_t begin, int64_t count, bool own, Color color) {
  std::vector<Point> way;
  if (own) way.push_back({});
  for (int64_t i = 0; i < count; ++i) way.push_back(point(path.at(begin + i)));
  painter.line(way, own ? 3 : 1.5, color, own ? 0.9 : 0.7);
  for (int64_t i = 9; own && i < count; i += 10) {
    painter.canvas.disc(painter.seen(point(path.at(begin + i))), 3.5, color);
  }
}

void paint_ego(Painter& painter, const dtk::diffusion_planner::FrameBatch& batch, int64_t row) {
  const Rows past(batch.ego_agent_past, row), shape(batch.ego_shape, row);
  std::vector<Point> way;
  for (int64_t i = 0; i < past.size(0); ++i) way.push_back(point(past.at(i)));
  if (!way.empty()) painter.line(way, 2, ego_color, 0.4);
  double wheelbase = 2.8, length = 4.6, width = 1.9;  // upstream's frames do not tell
  if (batch.ego_shape.defined()) {
    wheelbase = shape.at(0)[0], length = shape.at(0)[1], width = shape.at(0)[2];
  }
  paint_vehicle(painter, {{{wheelbase / 2, 0}, 0}, length, width}, ego_color);
}

void paint_goal(Painter& painter, const dtk::diffusion_planner::FrameBatch& batch, int64_t row) {
  if (!batch.goal_pose.defined()) return;
  const Rows goal(batch.goal_pose, row);
  const Point at = painter.seen(point(goal.at(0)));
  painter.canvas.disc(at, 6, ink);
  painter.canvas.disc(at, 3.5, paint);
}

void paint_legend(Painter& painter, bool predicted) {
  Canvas& canvas = painter.canvas;
  const double bottom = canvas.height() - 10.0;
  const double metres = painter.scale > 4 ? 10 : 20;
  canvas.fill({{0, bottom - 24}, {0, bottom + 10}, {600, bottom + 10}, {600, bottom - 24}}, ground, 0.8);
  const double end = 14 + metres * painter.scale;
  canvas.stroke({{14, bottom - 10}, {14, bottom}, {end, bottom}, {end, bottom - 10}}, 2, ink);
  canvas.write({end + 8, bottom - 14}, metres == 10 ? "10 M" : "20 M", ink);
  double at = end + 72;
  const auto entry = [&](Color color, std::string_view text) {
    canvas.stroke({{at, bottom - 7}, {at + 18, bottom - 7}}, 4, color);
    canvas.write({at + 26, bottom - 14}, text, ink);
    at += 44 + 12 * static_cast<double>(text.size());
  };
  entry(ego_color, "EGO");
  entry(truth, "TRUE");
  if (predicted) entry(prediction, "PREDICTED");
  entry(route_tint, "ROUTE");
}

double farthest(const Rows& path, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max({most, std::abs(point(path.at(i)).x), std::abs(point(path.at(i)).y)});
  }
  return most;
}

}  // namespace

dtk::Image draw_scene(const dtk::diffusion_planner::FrameBatch& batch, int64_t row, const at::Tensor& predicted,
                      const SceneImageOptions& options) {
  if (row < 0 || row >= batch.lanes.size(0)) {
    throw std::out_of_range("draw_scene: row " + std::to_string(row) + " of " +
                            std::to_string(batch.lanes.size(0)));
  }
  const bool shaped = !predicted.defined() || (predicted.dim() == 3 && predicted.size(0) > 0 &&
                                               (predicted.size(2) == 3 || predicted.size(2) == 4));
  if (!shaped || options.pixels < 200) {
    throw std::invalid_argument(
        "draw_scene: predicted has to be (trajectories, steps, 3 or 4), and a side 200 pixels at least");
  }
  const Rows future(batch.ego_agent_future, row);
  const Rows paths(predicted.defined() ? predicted.unsqueeze(0) : at::Tensor(), 0);
  double reach = options.reach;
  if (reach <= 0) {
    reach =
        std::max(farthest(future, future.size(0)), paths.size(0) > 0 ? farthest(paths, paths.size(1)) : 0);
    reach = std::clamp(reach + 12, 40.0, 130.0);
  }
  Painter painter(static_cast<int>(options.pixels), reach);
  paint_map(painter, batch, row);
  paint_goal(painter, batch, row);
  paint_traffic(painter, batch, row);
  paint_path(painter, future, 0, future.size(0), true, truth);
  for (int64_t i = 1; i < paths.size(0); ++i) {
    paint_path(painter, paths, i * paths.size(1), paths.size(1), false, prediction);
  }
  if (paths.size(0) > 0) paint_path(painter, paths, 0, paths.size(1), true, prediction);
  paint_ego(painter, batch, row);
  paint_legend(painter, paths.size(0) > 0);
  return painter.canvas.image();
}

}  // namespace scenes
