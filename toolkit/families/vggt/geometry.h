// Cameras as VGGT says them, and as files say them.
//
// A pose is nine numbers: the translation and the rotation, as a quaternion x y z w, that bring a point of
// the world to the camera's own coordinates (x to the right, y down, z ahead), and the fields of view of
// height and width in radians. The focal length of a side of N pixels is N/2 : tan(field/2), its centre N/2.
#pragma once
#include <array>

namespace dtk::vggt {

using Pose = std::array<double, 9>;
using Vector = std::array<double, 3>;
using Rotation = std::array<Vector, 3>;  // rows

struct Camera {
  Rotation rotation{};              // camera from world
  Vector translation{};             // likewise
  double focal_x = 0, focal_y = 0;  // pixels
};

/// Whether R·Rᵀ is the identity within 1e-3, and its determinant is above 0.
bool is_rotation(const Rotation& rotation);

/// Of a picture of so many pixels. Throws std::invalid_argument for a rotation that is none.
Pose pose_of(const Camera& camera, double height, double width);
/// The quaternion may have any length above 0; a field of view that is no more than 0 gives a focal length of
/// 0.
Camera camera_of(const Pose& pose, double height, double width);

/// `camera` as seen by `first`, whose own coordinates are the world's then.
Camera relative_to(const Camera& first, const Camera& camera);

/// The point of the world at `depth` behind pixel (x, y), counted from the corner of the picture.
Vector point_behind(const Camera& camera, double x, double y, double depth, double height, double width);

}  // namespace dtk::vggt
