// From the driving model's samples as files hold them to what its model takes: headings as cosine and sine,
// then normalised values. Between the two come the augmentations, which need metres.
//
// Everything runs on the samples' device and reads no value on the host.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "toolkit/families/diffusion_planner/batch.h"

namespace dtk::diffusion_planner {

/// Poses (..., 3) x, y, heading as (..., 4) x, y, cos, sin.
at::Tensor with_cos_sin(const at::Tensor& poses);

/// Gives ego_agent_past (N, past, 4) and goal_pose (N, 4), as far as there are some. A row of zeros becomes
/// 0, 0, 1, 0: it is a pose, and is normalised.
void headings_to_cos_sin(FrameBatch& batch);

struct Futures {
  at::Tensor ego;            // (N, future, 4) x, y, cos, sin
  at::Tensor neighbors;      // (N, predicted_neighbors, future, 4); 0 where a step is not there
  at::Tensor neighbor_mask;  // (N, predicted_neighbors, future), bool: true where a step is not there
};
/// Of futures (..., 3) as in FrameBatch. A neighbour's step is not there if x, y and heading are all
/// exactly 0.
Futures futures_of(const at::Tensor& ego_future, const at::Tensor& neighbors_future);

/// (value - mean) / std for each feature, the last dimension.
struct FeatureScale {
  std::vector<float> mean, std;
};

/// Those of the published models: of all arrays of FrameBatch that are normalised, by key, poses with
/// cosine and sine. `lane_features` as in FrameSizes.
std::map<std::string, FeatureScale> published_scales(int64_t lane_features);
/// The same of one pose of a trajectory that is learnt, x, y, cos, sin: that of to_units().
FeatureScale pose_scale();

/// Of what the model sees. A row (the last dimension) of zeros is something that is not there and stays 0.
class Normalizer {
 public:
  /// Throws std::invalid_argument for a scale whose mean and std have not the same number of features, or a
  /// std of 0.
  Normalizer(const std::map<std::string, FeatureScale>& scales, c10::Device device);

  /// `values` (..., features) of the array `key`; throws std::out_of_range for a key without a scale.
  at::Tensor normalized(const std::string& key, at::Tensor values) const;
  /// Normalises all arrays of `batch` that have a scale, after headings_to_cos_sin(); one at a time, so
  /// beside the batch one array is in memory.
  void normalize(FrameBatch& batch) const;

 private:
  struct Scale {
    at::Tensor mean, std;  // (features)
  };
  std::map<std::string, Scale> scales_;
};

/// What the model predicts: poses (..., 4) of x, y (m), cos, sin as it sees them, (x - 10 m) / 20 m and
/// y / 20 m; and back. Zeros are values like others. Of every actor, in training and in sampling: the losses
/// count on this unit.
at::Tensor to_units(const at::Tensor& metres);
at::Tensor to_metres(const at::Tensor& units);
inline constexpr double kUnitLength = 20;   // m, and m/s
inline constexpr double kUnitForward = 10;  // m

}  // namespace dtk::diffusion_planner
