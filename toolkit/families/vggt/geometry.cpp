#include "toolkit/families/vggt/geometry.h"

#include <cmath>
#include <cstddef>
#include <stdexcept>

namespace dtk::vggt {
namespace {

double dot(const Vector& a, const Vector& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

Vector cross(const Vector& a, const Vector& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

Vector column(const Rotation& rotation, size_t i) {
  return {rotation[0].at(i), rotation[1].at(i), rotation[2].at(i)};
}

// rotation · x, and its inverse
Vector turned(const Rotation& rotation, const Vector& x) {
  return {dot(rotation[0], x), dot(rotation[1], x), dot(rotation[2], x)};
}
Vector turned_back(const Rotation& rotation, const Vector& x) {
  return {dot(column(rotation, 0), x), dot(column(rotation, 1), x), dot(column(rotation, 2), x)};
}

Vector minus(const Vector& a, const Vector& b) {
  return {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
}

// Shepperd's method: from the largest of the four, so that nothing is divided by a small number; w is not
// below 0.
std::array<double, 4> quaternion_of(const Rotation& r) {
  const double trace = r[0][0] + r[1][1] + r[2][2];
  std::array<double, 4> q{};  // x y z w
  if (trace > 0) {
    const double s = 2 * std::sqrt(trace + 1);
    q = {(r[2][1] - r[1][2]) / s, (r[0][2] - r[2][0]) / s, (r[1][0] - r[0][1]) / s, s / 4};
  } else {
    size_t i = r[1][1] > r[0][0] ? 1 : 0;
    if (r[2][2] > r.at(i).at(i)) i = 2;
    const size_t j = (i + 1) % 3, k = (i + 2) % 3;
    const double s = 2 * std::sqrt(r.at(i).at(i) - r.at(j).at(j) - r.at(k).at(k) + 1);
    q.at(i) = s / 4;
    q.at(j) = (r.at(j).at(i) + r.at(i).at(j)) / s;
    q.at(k) = (r.at(k).at(i) + r.at(i).at(k)) / s;
    q[3] = (r.at(k).at(j) - r.at(j).at(k)) / s;
  }
  if (q[3] < 0) {
    for (double& one : q) one = -one;
  }
  return q;
}

}  // namespace

bool is_rotation(const Rotation& rotation) {
  constexpr double kOff = 1e-3;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      if (!(std::abs(dot(rotation.at(i), rotation.at(j)) - (i == j ? 1 : 0)) <= kOff)) return false;
    }
  }
  return dot(cross(rotation[0], rotation[1]), rotation[2]) > 0;
}

Pose pose_of(const Camera& camera, double height, double width) {
  if (!is_rotation(camera.rotation)) throw std::invalid_argument("a pose of no rotation");
  const auto q = quaternion_of(camera.rotation);
  const auto field = [](double side, double focal) { return 2 * std::atan2(side / 2, focal); };
  const Vector& t = camera.translation;
  return {
      t[0], t[1], t[2], q[0], q[1], q[2], q[3], field(height, camera.focal_y), field(width, camera.focal_x)};
}

Camera camera_of(const Pose& pose, double height, double width) {
  const double length =
      std::sqrt(pose[3] * pose[3] + pose[4] * pose[4] + pose[5] * pose[5] + pose[6] * pose[6]);
  const double x = pose[3] / length, y = pose[4] / length, z = pose[5] / length, w = pose[6] / length;
  Camera camera;
  camera.rotation = {{{1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)},
                      {2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)},
                      {2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)}}};
  camera.translation = {pose[0], pose[1], pose[2]};
  const auto focal = [](double side, double field) { return field > 0 ? side / 2 / std::tan(field / 2) : 0; };
  camera.focal_y = focal(height, pose[7]);
  camera.focal_x = focal(width, pose[8]);
  return camera;
}

Camera relative_to(const Camera& first, const Camera& camera) {
  Camera seen = camera;
  for (size_t i = 0; i < 3; ++i) seen.rotation.at(i) = turned(first.rotation, camera.rotation.at(i));
  seen.translation = minus(camera.translation, turned(seen.rotation, first.translation));
  return seen;
}

Vector point_behind(const Camera& camera, double x, double y, double depth, double height, double width) {
  const Vector own{(x - width / 2) / camera.focal_x * depth, (y - height / 2) / camera.focal_y * depth,
                   depth};
  return turned_back(camera.rotation, minus(own, camera.translation));
}

}  // namespace dtk::vggt
