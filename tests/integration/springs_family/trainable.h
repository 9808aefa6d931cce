// The network with its loss, and the futures that it draws.
#pragma once
#include "network.h"
#include "toolkit/train/trainable_model.h"

namespace springs {

class TrainableSprings final : public dtk::TrainableModel {
 public:
  TrainableSprings(const dtk::RunConfig& config, c10::Device device,
                   std::optional<at::Generator> generator = std::nullopt);

  const models::NamedTensors& parameters() const override { return network_.parameters(); }
  const std::vector<std::string>& paths() const override { return network_.paths(); }
  models::Seam& seam() override { return network_.seam; }
  std::unique_ptr<TrainableModel> with_own_seam() const override;
  /// Smooth L1 of the positions; a step's weight goes from 1 to springs.late_weight.
  at::Tensor loss(dtk::Batch batch, const at::Generator& noise, bool training) const override;
  dtk::Batch made_up_batch(int64_t samples, const at::Generator& generator) const override;
  std::vector<dtk::NamedTensor> sample(const dtk::DataSource& data, const dtk::KeepGoing& keep_going,
                                       const dtk::SharedSamples& shared) const override;
  void check_fit(const dtk::Weights& weights) const override;

  /// Of the first `count` samples of `data`: "positions" (count, T, 2) in m.
  std::vector<dtk::NamedTensor> futures(const dtk::DataSource& data, int64_t count,
                                        const dtk::KeepGoing& keep_going,
                                        const dtk::SharedSamples& shared = {}) const;

 private:
  TrainableSprings(const dtk::RunConfig& config, Network network);
  dtk::Batch on_device(dtk::Batch batch) const;
  at::Tensor predicted(dtk::Batch& batch) const;

  const dtk::RunConfig config_;
  const Table& table_;
  Network network_;
};

}  // namespace springs
