// A LLaVA with its loss.
#pragma once
#include <dtk/models/llava.h>

#include "toolkit/train/trainable_model.h"

namespace dtk::llava {

/// [llava] with what train.parts says.
models::LlavaOptions model_options(const RunConfig& config);

/// Batches are those of batch.h. The loss is a mean over all labels of the batch.
class TrainableLlava final : public TrainableModel {
 public:
  TrainableLlava(const RunConfig& config, c10::Device device,
                 std::optional<at::Generator> generator = std::nullopt,
                 const models::ParameterMade& made = {});

  const models::NamedTensors& parameters() const override { return model_.parameters(); }
  std::vector<std::string> unused() const override { return model_.unused(); }
  const std::vector<std::string>& paths() const override { return model_.paths(); }
  models::NamedTensors packed() const override;
  models::NamedTensors in_files() const override;
  void read_packed(const Weights& weights) const override;
  models::Seam& seam() override { return model_.seam; }
  std::unique_ptr<TrainableModel> with_own_seam() const override;
  at::Tensor loss(Batch batch, const at::Generator& noise, bool training) const override;
  Batch made_up_batch(int64_t samples, const at::Generator& generator) const override;
  std::vector<NamedTensor> sample(const DataSource&, const KeepGoing&, const SharedSamples&) const override {
    return {};
  }
  Weights own_names(Weights weights) const override;
  void check_fit(const Weights& weights) const override;

  const models::Llava& model() const { return model_; }

 private:
  TrainableLlava(const RunConfig& config, models::Llava model);

  const RunConfig config_;
  models::Llava model_;
};

}  // namespace dtk::llava
