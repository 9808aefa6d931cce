// Cameras, depths and points of the frames of a scene, in phases: load, encode, aggregate, camera, depth,
// points; write, within and between them, brings results to the host.
#pragma once
#include <dtk/models/vggt.h>
#include <dtk/policies/report.h>

#include <vector>

#include "toolkit/train/model_family.h"

namespace dtk::vggt {

struct Scene {
  int64_t frames = 0, height = 0, width = 0;
  models::Vggt::Read read;
};

/// On the CPU, fp32, of the heads that there are.
struct Inferred {
  at::Tensor poses;                      // (S, 9): geometry.h
  at::Tensor depths, depth_confidence;   // (S, H, W)
  at::Tensor points, points_confidence;  // (S, H, W, 3), (S, H, W)
  std::vector<policies::PolicyReport> policies;
};

/// `weights`: null for the model's own draws, from train.seed. `keep_going` is asked before frames are read
/// or given; where it says no, nothing is there afterwards. Throws policies::PolicyError, and ConfigError for
/// weights of another model.
Inferred infer(const RunConfig& config, c10::Device device, const Weights* weights, const Scene& scene,
               const KeepGoing& keep_going = nullptr, const ModelFamily::PutIn& put_in = nullptr);

}  // namespace dtk::vggt
