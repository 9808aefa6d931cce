#include "diffusion_planner/geometry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace scenes {

double length(Point a) {
  return std::sqrt(dot(a, a));
}

Point direction(double angle) {
  return {std::cos(angle), std::sin(angle)};
}

double wrapped(double angle) {
  return std::remainder(angle, 2 * std::numbers::pi);
}

double distance_to_segment(Point point, Point begin, Point end) {
  const Point along = end - begin;
  const double square = dot(along, along);
  const double part = square > 0 ? std::clamp(dot(point - begin, along) / square, 0.0, 1.0) : 0;
  return length(point - begin - along * part);
}

Point Pose::ahead(double forward, double left) const {
  const Point unit = direction(heading);
  return at + unit * forward + left_of(unit) * left;
}

Point Pose::sees(Point place) const {
  const Point unit = direction(heading);
  return {dot(place - at, unit), cross(unit, place - at)};
}

Path::Path(const std::vector<Point>& points) {
  std::vector<double> passed = {0};
  for (size_t i = 1; i < points.size(); ++i) {
    passed.push_back(passed.back() + scenes::length(points[i] - points[i - 1]));
  }
  length_ = passed.back();
  const int pieces = std::max(1, static_cast<int>(std::lround(length_)));
  spacing_ = length_ / pieces;
  size_t next = 1;
  for (int i = 0; i <= pieces; ++i) {
    const double wanted = i * spacing_;
    while (next + 1 < points.size() && passed[next] < wanted) ++next;
    const double part = (wanted - passed[next - 1]) / (passed[next] - passed[next - 1]);
    points_.push_back(points[next - 1] + (points[next] - points[next - 1]) * std::clamp(part, 0.0, 1.0));
  }
  for (size_t i = 0; i < points_.size(); ++i) {
    const Point along = points_[std::min(i + 1, points_.size() - 1)] - points_[i == 0 ? 0 : i - 1];
    headings_.push_back(std::atan2(along.y, along.x));
  }
}

Pose Path::at(double distance) const {
  const double index = std::clamp(distance, 0.0, length_) / spacing_;
  const size_t i = std::min(static_cast<size_t>(index), points_.size() - 2);
  const double part = index - static_cast<double>(i);
  return {points_[i] + (points_[i + 1] - points_[i]) * part,
          wrapped(headings_[i] + part * wrapped(headings_[i + 1] - headings_[i]))};
}

double Path::curvature(double distance) const {
  constexpr double reach = 2;
  const double begin = std::clamp(distance - reach, 0.0, length_);
  const double end = std::clamp(distance + reach, 0.0, length_);
  return end > begin ? wrapped(at(end).heading - at(begin).heading) / (end - begin) : 0;
}

double Path::nearest(Point point, double guess) const {
  for (int i = 0; i < 3; ++i) {
    const Pose pose = at(guess);
    guess = std::clamp(guess, 0.0, length_) + dot(point - pose.at, direction(pose.heading));
  }
  return std::clamp(guess, 0.0, length_);
}

double Path::nearest(Point point) const {
  size_t best = 0;
  double min_distance = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < points_.size(); ++i) {
    const double seen = scenes::length(points_[i] - point);
    if (seen < min_distance) min_distance = seen, best = i;
  }
  return nearest(point, static_cast<double>(best) * spacing_);
}

Path Path::reversed() const {
  return Path(std::vector<Point>(points_.rbegin(), points_.rend()));
}

std::vector<Point> Path::sampled(int count, double begin, double end) const {
  std::vector<Point> places;
  for (int i = 0; i < count; ++i) places.push_back(at(begin + (end - begin) * i / (count - 1)).at);
  return places;
}

Path Path::part(double begin, double end) const {
  return Path(sampled(std::max(2, static_cast<int>(std::lround(end - begin)) + 1), begin, end));
}

Path joined(const Pose& from, const Pose& to) {
  const double turn = std::abs(wrapped(to.heading - from.heading));
  const double chord = length(to.at - from.at);
  // Of a cubic that follows an arc of that chord and turn.
  const double handle =
      turn < 1e-3 ? chord / 3 : chord * 2 / 3 * std::tan(turn / 4) / std::sin(std::min(turn, 3.0) / 2);
  const std::array<Point, 4> p = {from.at, from.ahead(handle), to.ahead(-handle), to.at};
  constexpr int pieces = 100;
  std::vector<Point> points;
  for (int i = 0; i <= pieces; ++i) {
    const double t = static_cast<double>(i) / pieces, s = 1 - t;
    points.push_back(p[0] * (s * s * s) + p[1] * (3 * s * s * t) + p[2] * (3 * s * t * t) +
                     p[3] * (t * t * t));
  }
  return Path(points);
}

std::array<Point, 4> corners(const Box& box) {
  const double ahead = box.length / 2, left = box.width / 2;
  return {box.center.ahead(ahead, left), box.center.ahead(ahead, -left), box.center.ahead(-ahead, -left),
          box.center.ahead(-ahead, left)};
}

bool overlap(const Box& a, const Box& b) {
  const auto of_a = corners(a), of_b = corners(b);
  const auto apart = [&](Point axis) {
    double a_low = dot(of_a[0], axis), a_high = a_low, b_low = dot(of_b[0], axis), b_high = b_low;
    for (size_t i = 1; i < 4; ++i) {
      a_low = std::min(a_low, dot(of_a[i], axis)), a_high = std::max(a_high, dot(of_a[i], axis));
      b_low = std::min(b_low, dot(of_b[i], axis)), b_high = std::max(b_high, dot(of_b[i], axis));
    }
    return a_high < b_low || b_high < a_low;
  };
  for (const double heading : {a.center.heading, b.center.heading}) {
    if (apart(direction(heading)) || apart(left_of(direction(heading)))) return false;
  }
  return true;
}

}  // namespace scenes
