// All that training the driving model needs beside the model: the loss of frames as their files hold them,
// and the trajectories that validation draws. B batch, P actors (the ego first), T future steps.
//
// Everything runs on the device of the frames, which is the model's. No value is read on the host and no
// shape depends on one. Calls may come from several threads at once.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <dtk/models/diffusion_planner.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/diffusion/dpm_solver.h"
#include "toolkit/families/diffusion_planner/augmentation.h"
#include "toolkit/families/diffusion_planner/batch.h"
#include "toolkit/families/diffusion_planner/inputs.h"
#include "toolkit/families/diffusion_planner/losses.h"
#include "toolkit/families/diffusion_planner/metrics.h"
#include "toolkit/families/diffusion_planner/noise.h"
#include "toolkit/families/diffusion_planner/options.h"
#include "toolkit/io/npz.h"

namespace dtk::diffusion_planner {

struct TrajectoryObjectiveOptions {
  ProcessOptions process;
  LossOptions loss;
  std::optional<AugmentationOptions> augmentation;  // of training only; absent: frames as they are
  // Of the arrays that published_scales() names, as far as the frames have them.
  std::map<std::string, FeatureScale> scales;
  DpmSolverOptions solver;
};

/// What the model reads of frames after Normalizer::normalize().
models::DrivingScene driving_scene(const FrameBatch& normalized);

/// What happened, for PathMetrics: of frames as their files hold them.
Outcome outcome_of(const FrameBatch& batch);

class TrajectoryObjective {
 public:
  /// For models of these options. Throws std::invalid_argument, saying what to change, for a prefix with "UP"
  /// or none with another preset, an array of the frames without a scale or with one for another number of
  /// features, and an augmentation with "UP", whose frames do not tell the ego's shape; and as
  /// models::resolved() and TrajectorySmoother.
  TrajectoryObjective(const models::DiffusionPlannerOptions& model, const TrajectoryObjectiveOptions& options,
                      c10::Device device);

  /// The weighted sum of all terms over the frames in `batch`, metres and headings as in their files: a
  /// scalar, fp32. Draws come from `generator`, of the frames' device; dropout's from that device's default
  /// one. Without `training` neither the augmentation nor dropout acts. `batch` is let go as soon as it has
  /// been read.
  ///
  /// This and the next three throw std::invalid_argument for frames that lack an array or have one of another
  /// shape than the model, with its key.
  at::Tensor loss(const models::DiffusionPlanner& model, FrameBatch batch, const at::Generator& generator,
                  bool training) const;

  /// The random part, in this order; `shift` is undefined where no augmentation acts.
  struct Draws {
    ShiftDraws shift;
    NoiseDraws noise;
  };
  Draws draw(const FrameBatch& batch, const at::Generator& generator, bool training) const;
  /// The terms of the loss one by one, of given draws.
  Losses losses(const models::DiffusionPlanner& model, FrameBatch batch, Draws draws, bool training) const;

  struct Prediction {
    at::Tensor trajectories;  // (B, P, T, 4) x, y (m), cos, sin
    at::Tensor logits;        // (B, 5) of the turn indicator; undefined for "UP"
  };
  /// Draws trajectories in solver.steps + 1 evaluations of the network, without gradients. `initial`
  /// (B, P, 1 + T, 4) is the noise to begin with; undefined: zeros, so that the result is deterministic. The
  /// frames' futures are not read and may be undefined.
  Prediction predict(const models::DiffusionPlanner& model, FrameBatch batch, at::Tensor initial = {}) const;

  const TrajectoryObjectiveOptions& options() const { return options_; }

 private:
  bool augments(bool training) const { return training && augmentation_.has_value(); }
  void check(const FrameBatch& batch, bool with_futures) const;
  Supervision supervision(const FrameBatch& normalized, const Futures& futures) const;

  const models::DiffusionPlannerOptions model_;  // resolved
  const TrajectoryObjectiveOptions options_;
  const std::vector<NpzArray> arrays_;
  const Normalizer normalizer_;
  std::optional<Augmentation> augmentation_;
};

}  // namespace dtk::diffusion_planner
