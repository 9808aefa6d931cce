// Places, paths and boxes in the plane. Metres and radians; angles are counter-clockwise from x.
#pragma once
#include <array>
#include <vector>

namespace scenes {

struct Point {
  double x = 0, y = 0;
};
inline Point operator+(Point a, Point b) {
  return {a.x + b.x, a.y + b.y};
}
inline Point operator-(Point a, Point b) {
  return {a.x - b.x, a.y - b.y};
}
inline Point operator*(Point a, double factor) {
  return {a.x * factor, a.y * factor};
}
inline double dot(Point a, Point b) {
  return a.x * b.x + a.y * b.y;
}
inline double cross(Point a, Point b) {
  return a.x * b.y - a.y * b.x;
}
double length(Point a);
Point direction(double angle);
/// A quarter turn to the left.
inline Point left_of(Point a) {
  return {-a.y, a.x};
}
/// Within ±π.
double wrapped(double angle);
double distance_to_segment(Point point, Point begin, Point end);

struct Pose {
  Point at;
  double heading = 0;

  Point ahead(double forward, double left = 0) const;
  /// A place, as seen from this pose: x ahead, y to the left.
  Point sees(Point place) const;
};

/// A line through points, by the distance from its beginning. Distances outside [0, length()] are taken for
/// the nearer end.
class Path {
 public:
  Path() = default;
  /// Through `points`, two at least, no two successive ones equal. They are replaced by points about 1 m
  /// apart.
  explicit Path(const std::vector<Point>& points);

  double length() const { return length_; }
  Pose at(double distance) const;
  /// 1/m, above 0 to the left.
  double curvature(double distance) const;
  /// The distance of the place nearest to `point`, for a `guess` a few metres from it.
  double nearest(Point point, double guess) const;
  /// The same without a guess, by looking at all points.
  double nearest(Point point) const;

  const std::vector<Point>& points() const { return points_; }
  Path reversed() const;
  /// The part between two distances.
  Path part(double begin, double end) const;
  /// `count` places, two at least, evenly from begin to end.
  std::vector<Point> sampled(int count, double begin, double end) const;

 private:
  std::vector<Point> points_;     // spacing_ apart
  std::vector<double> headings_;  // of points_
  double length_ = 0, spacing_ = 1;
};

/// A path that leaves `from` in its direction and arrives at `to` in its: an arc where both are tangents of
/// one.
Path joined(const Pose& from, const Pose& to);

struct Box {
  Pose center;
  double length = 0, width = 0;
};
/// Front left, front right, rear right, rear left.
std::array<Point, 4> corners(const Box& box);
/// Whether any point is in both.
bool overlap(const Box& a, const Box& b);

}  // namespace scenes
