// A DiT with the objective that [diffusion] names, over images or latents with a class each.
#pragma once
#include <dtk/models/dit.h>

#include "toolkit/diffusion/objective.h"
#include "toolkit/train/trainable_model.h"

namespace dtk::dit {

/// Batches are those of an ImageSource: images (N, C, S, S) and labels (N). Its samples are "samples"
/// (N, C, S, S), in [-1, 1] for images, and "labels" (N): sample.per_class of each of grid_classes().
class TrainableDit final : public TrainableModel {
 public:
  /// As make_model().
  TrainableDit(const RunConfig& config, c10::Device device,
               std::optional<at::Generator> generator = std::nullopt, const models::ParameterMade& made = {});

  const models::NamedTensors& parameters() const override { return dit_.parameters(); }
  const std::vector<std::string>& paths() const override { return dit_.paths(); }
  std::vector<std::string> derived() const override { return {"pos_embed"}; }
  models::Seam& seam() override { return dit_.seam; }
  std::unique_ptr<TrainableModel> with_own_seam() const override;
  at::Tensor loss(Batch batch, const at::Generator& noise, bool training) const override;
  bool draws_for_whole() const override { return true; }
  Batch made_up_batch(int64_t samples, const at::Generator& generator) const override;
  std::vector<NamedTensor> sample(const DataSource& data, const KeepGoing& keep_going,
                                  const SharedSamples& shared) const override;
  void check_fit(const Weights& weights) const override;

  const models::Dit& dit() const { return dit_; }

 private:
  TrainableDit(const RunConfig& config, models::Dit dit);

  const RunConfig config_;
  models::Dit dit_;
  const std::unique_ptr<const Objective> objective_;
};

}  // namespace dtk::dit
