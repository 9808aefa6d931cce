#include "diffusion_planner/path_error.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace scenes {

at::Tensor constant_velocity(const at::Tensor& ego_current_state, int64_t steps) {
  const at::Tensor place = ego_current_state.narrow(1, 0, 2), velocity = ego_current_state.narrow(1, 4, 2);
  const at::Tensor seconds = at::arange(1, steps + 1, ego_current_state.options()) * 0.1;
  return place.unsqueeze(1) + velocity.unsqueeze(1) * seconds.view({1, steps, 1});
}

void PathError::add(const at::Tensor& path, const at::Tensor& truth) {
  const bool fits = path.dim() == 3 && truth.dim() == 3 && path.size(0) == truth.size(0) &&
                    path.size(1) == truth.size(1) && path.size(1) > 0 && path.size(2) >= 2 &&
                    truth.size(2) >= 2;
  if (!fits) {
    throw std::invalid_argument(
        "PathError: path and truth have to be (N, T, 2 or more) with the same N and T");
  }
  const auto places = [](const at::Tensor& poses) { return poses.narrow(2, 0, 2).to(at::kDouble); };
  const at::Tensor distance = (places(path) - places(truth)).square().sum(2).sqrt();
  average_ += distance.mean(1).sum().item<double>();
  final_ += distance.select(1, distance.size(1) - 1).sum().item<double>();
  frames_ += path.size(0);
}

}  // namespace scenes
