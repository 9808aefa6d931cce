// The driving model with its objective, over frames.
#pragma once
#include <dtk/models/diffusion_planner.h>

#include "toolkit/families/diffusion_planner/objective.h"
#include "toolkit/train/trainable_model.h"

namespace dtk::diffusion_planner {

/// In a checkpoint: the scales of its inputs (normalization.h), also where they are the published
/// ones.
constexpr char kScalesFile[] = "normalization.json";

/// Batches are those of a FrameSource. Its samples are trajectories() of the first sample.frames
/// frames.
class TrainableDiffusionPlanner final : public TrainableModel {
 public:
  /// As make_model().
  TrainableDiffusionPlanner(const RunConfig& config, c10::Device device,
                            std::optional<at::Generator> generator = std::nullopt,
                            const models::ParameterMade& made = {});

  const models::NamedTensors& parameters() const override { return model_.parameters(); }
  const std::vector<std::string>& paths() const override { return model_.paths(); }
  models::Seam& seam() override { return model_.seam; }
  std::unique_ptr<TrainableModel> with_own_seam() const override;
  at::Tensor loss(Batch batch, const at::Generator& noise, bool training) const override;
  Batch made_up_batch(int64_t samples, const at::Generator& generator) const override;
  std::vector<NamedTensor> sample(const DataSource& data, const KeepGoing& keep_going,
                                  const SharedSamples& shared) const override;
  /// Those of PathScores that the frames have what they need for.
  std::unique_ptr<SampleScores> scores() const override;
  /// kScalesFile; none on the meta device, where no file is read.
  std::map<std::string, std::string> files() const override;
  void check_fit(const Weights& weights) const override;

  /// Of the first `count` frames, as many at a time as the run's micro-batch, on the CPU: "trajectories"
  /// (N, P, T, 4), "ego_future" (N, T, 4), which is what happened, both x, y (m), cos, sin, and, of a model
  /// with that head, "turn_indicator" (N, 5), logits. Drawn in sample.steps steps without noise. `keep_going`
  /// is asked before each batch; empty if it gave up. Throws as DataSource::read().
  std::vector<NamedTensor> trajectories(const DataSource& frames, int64_t count, const KeepGoing& keep_going,
                                        const SharedSamples& shared = {}) const;

 private:
  TrainableDiffusionPlanner(const RunConfig& config, models::DiffusionPlanner model);

  const RunConfig config_;
  models::DiffusionPlanner model_;
  std::optional<const TrajectoryObjective> objective_;  // none on the meta device, where nothing is computed
};

}  // namespace dtk::diffusion_planner
