// Cameras, depths and points of the frames of a scene, in phases: load, encode, aggregate, camera, depth,
// points; write, within and between them, brings results to the host and hands them on, a few frames at a
// time.
#pragma once
#include <dtk/models/vggt.h>
#include <dtk/policies/report.h>

#include <optional>
#include <vector>

#include "toolkit/train/model_family.h"

namespace dtk::vggt {

struct Scene {
  int64_t frames = 0, height = 0, width = 0;
  models::Vggt::Read read;
};

/// Takes what is found, on the CPU, fp32, of the heads that there are; all of it in phase write. Forgets what
/// is not overridden.
class Results {
 public:
  virtual ~Results() = default;
  virtual void take_poses(const at::Tensor& /*poses*/) {}  ///< (S, 9): geometry.h
  /// Of n frames from `first` on, the first ones first: depths (n, H, W) or points (n, H, W, 3), and
  /// confidence (n, H, W).
  virtual void take_depths(int64_t /*first*/, const at::Tensor& /*depths*/,
                           const at::Tensor& /*confidence*/) {}
  virtual void take_points(int64_t /*first*/, const at::Tensor& /*points*/,
                           const at::Tensor& /*confidence*/) {}
};

/// `weights`: null for the model's own draws, from train.seed. `keep_going` is asked before frames are read
/// or given; nothing is returned where it says no. Throws policies::PolicyError, ConfigError for weights of
/// another model, and what `results` throws.
std::optional<std::vector<policies::PolicyReport>> infer(const RunConfig& config, c10::Device device,
                                                         const Weights* weights, const Scene& scene,
                                                         Results& results,
                                                         const KeepGoing& keep_going = nullptr,
                                                         const ModelFamily::PutIn& put_in = nullptr);

}  // namespace dtk::vggt
