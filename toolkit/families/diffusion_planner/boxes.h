// Boxes on the road, for the driving model's losses and augmentation. Lengths in m; "..." any dimensions.
#pragma once
#include <ATen/core/Tensor.h>

namespace dtk::boxes {

/// Directions (..., 2) divided by their length, or by `shortest` where they are shorter.
at::Tensor unit(const at::Tensor& direction, double shortest);

/// A box's two axes (..., 2, 2): along its unit heading (..., 2), and to the left.
at::Tensor axes(const at::Tensor& heading);

/// Corners (..., 4, 2) front left, front right, rear right, rear left of boxes with centre and unit heading
/// (..., 2), length and width (...).
at::Tensor corners(const at::Tensor& center, const at::Tensor& heading, const at::Tensor& length,
                   const at::Tensor& width);

/// How far two convex shapes of corners (..., K, 2) and (..., L, 2) reach into each other along each of the
/// axes (..., A, 2): (..., A), below 0 where there is a gap.
at::Tensor depths(const at::Tensor& axes, const at::Tensor& one, const at::Tensor& other);

}  // namespace dtk::boxes
