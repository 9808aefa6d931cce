// A VGGT with its loss.
#pragma once
#include <dtk/models/vggt.h>

#include "toolkit/train/trainable_model.h"

namespace dtk::vggt {

/// Batches are those of scenes.h.
class TrainableVggt final : public TrainableModel {
 public:
  TrainableVggt(const RunConfig& config, c10::Device device,
                std::optional<at::Generator> generator = std::nullopt, models::VggtTypes types = {},
                const models::ParameterMade& made = {});

  const models::NamedTensors& parameters() const override { return model_.parameters(); }
  std::vector<std::string> unused() const override;
  const std::vector<std::string>& paths() const override { return model_.paths(); }
  std::vector<std::string> weight_paths() const override;
  models::Seam& seam() override { return model_.seam; }
  std::unique_ptr<TrainableModel> with_own_seam() const override;
  at::Tensor loss(Batch batch, const at::Generator& noise, bool training) const override;
  Batch made_up_batch(int64_t samples, const at::Generator& generator) const override;
  std::vector<NamedTensor> sample(const DataSource&, const KeepGoing&, const SharedSamples&) const override {
    return {};
  }
  Weights own_names(Weights weights) const override;
  void check_fit(const Weights& weights) const override;

  const models::Vggt& model() const { return model_; }

 private:
  TrainableVggt(const RunConfig& config, models::Vggt model);

  const RunConfig config_;
  models::Vggt model_;
};

}  // namespace dtk::vggt
