// How far paths of the ego vehicle are from the one that it took.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace scenes {

/// Where the ego vehicle would be after each of `steps` steps of 0.1 s, (N, steps, 2) x, y in metres, if it
/// kept the velocity of ego_current_state (N, 10), straight on.
at::Tensor constant_velocity(const at::Tensor& ego_current_state, int64_t steps);

/// Mean distances in metres over all frames that were added; 0 without one.
class PathError {
 public:
  /// `path` and `truth` (N, T, 2 or more) x, y in metres, of N frames and the same T steps. Throws
  /// std::invalid_argument for other shapes.
  void add(const at::Tensor& path, const at::Tensor& truth);

  double average() const { return mean(average_); }  ///< ADE: over all steps
  double final() const { return mean(final_); }      ///< FDE: at the last step
  int64_t frames() const { return frames_; }

 private:
  double mean(double sum) const { return frames_ == 0 ? 0 : sum / static_cast<double>(frames_); }

  double average_ = 0, final_ = 0;
  int64_t frames_ = 0;
};

}  // namespace scenes
