#include "toolkit/families/diffusion_planner/boxes.h"

#include <ATen/ATen.h>

namespace dtk::boxes {
namespace {

at::Tensor left_of(const at::Tensor& heading) {
  return at::stack({heading.select(-1, 1).neg(), heading.select(-1, 0)}, -1);
}

}  // namespace

at::Tensor unit(const at::Tensor& direction, double shortest) {
  const at::Tensor length = at::linalg_vector_norm(direction, 2, {-1}, /*keepdim=*/true);
  return direction / length.clamp_min(shortest);
}

at::Tensor axes(const at::Tensor& heading) {
  return at::stack({heading, left_of(heading)}, -2);
}

at::Tensor corners(const at::Tensor& center, const at::Tensor& heading, const at::Tensor& length,
                   const at::Tensor& width) {
  const at::Tensor forward = heading * (length / 2).unsqueeze(-1);
  const at::Tensor left = left_of(heading) * (width / 2).unsqueeze(-1);
  const at::Tensor front = center + forward, rear = center - forward;
  return at::stack({front + left, front - left, rear - left, rear + left}, -2);
}

at::Tensor depths(const at::Tensor& axes, const at::Tensor& one, const at::Tensor& other) {
  const auto along = [&](const at::Tensor& shape) {  // (..., A, K)
    const at::Tensor x = axes.narrow(-1, 0, 1) * shape.select(-1, 0).unsqueeze(-2);
    return x + axes.narrow(-1, 1, 1) * shape.select(-1, 1).unsqueeze(-2);
  };
  const at::Tensor a = along(one), b = along(other);
  const at::Tensor upper = at::minimum(a.amax(-1), b.amax(-1));
  return upper - at::maximum(a.amin(-1), b.amin(-1));
}

}  // namespace dtk::boxes
