// The drivable trajectory nearest to a recorded one, for the driving model's augmentation: four small least
// squares for heading, speed, acceleration and curvature, and the path that the last two lead along.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace dtk::diffusion_planner {

constexpr double kTrajectoryStep = 0.1;  // s

/// For trajectories of N steps of 0.1 s. Solved in float64 whatever the input's type: the condition is near
/// 6e5, and in fp32 the path is off by centimetres. Calls may come from several threads at once.
class TrajectorySmoother {
 public:
  /// Takes 8 · (4 N² + N) bytes on `device`, owned by (parameters, "trajectory smoothing"). Throws
  /// std::invalid_argument for fewer than 4 steps, which the differences of third order need.
  TrajectorySmoother(int64_t steps, c10::Device device);

  struct Fit {
    at::Tensor future;   // (B, N, 3) of x, y (m), heading (rad; goes on beyond ±π)
    at::Tensor actions;  // (B, N, 2) acceleration (m/s²), curvature (1/m) from each pose to the next
  };
  /// `future` (B, N, 3) of x, y (m), heading (rad) as seen from the present pose, which is the origin;
  /// `speed` (B) ahead at present, m/s. Both results in float64. Reads no value on the host.
  Fit fit(const at::Tensor& future, const at::Tensor& speed) const;

 private:
  const int64_t steps_;
  at::Tensor headings_;       // (N, N): fitted headings of measured ones
  at::Tensor accelerations_;  // (N, N): fitted accelerations of differences of speed
  at::Tensor speeds_;         // (N, N + 1): what the speeds' equations have in common
  at::Tensor curvatures_;     // (N, N): likewise
};

}  // namespace dtk::diffusion_planner
