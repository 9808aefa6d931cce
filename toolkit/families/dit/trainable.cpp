#include "toolkit/families/dit/trainable.h"

#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "toolkit/families/dit/options.h"
#include "toolkit/families/dit/sampling.h"

namespace dtk::dit {

TrainableDit::TrainableDit(const RunConfig& config, c10::Device device,
                           std::optional<at::Generator> generator, const models::ParameterMade& made)
    : TrainableDit(config, models::Dit(options_of(config).model, device, std::move(generator), made)) {}

TrainableDit::TrainableDit(const RunConfig& config, models::Dit dit)
    : config_(config),
      dit_(std::move(dit)),
      objective_(
          make_objective(options_of(config).diffusion, options_of(config).model.learn_sigma, device())) {}

std::unique_ptr<TrainableModel> TrainableDit::with_own_seam() const {
  std::unique_ptr<TrainableDit> same(new TrainableDit(config_, dit_));
  same->dit_.seam = {};
  return same;
}

at::Tensor TrainableDit::loss(Batch batch, const at::Generator& noise, bool training) const {
  at::Tensor images = batch.tensors.at(0).to(device(), /*non_blocking=*/true);
  at::Tensor labels = batch.tensors.at(1).to(device(), /*non_blocking=*/true);
  const std::optional<BatchPart> part = batch.part;
  batch = {};
  const Denoiser denoiser = [this, training](at::Tensor x, at::Tensor t, at::Tensor y) {
    return dit_.forward(std::move(x), std::move(t), std::move(y), training);
  };
  return objective_->loss(denoiser, std::move(images), std::move(labels), noise, part);
}

Batch TrainableDit::made_up_batch(int64_t samples, const at::Generator& generator) const {
  const models::DitOptions& shape = dit_.options();
  const auto on_device = at::TensorOptions().device(device());
  return {{at::rand({samples, shape.channels, shape.image_size, shape.image_size}, generator, on_device),
           at::zeros({samples}, on_device.dtype(at::kLong))}};
}

std::vector<NamedTensor> TrainableDit::sample(const DataSource& data, const KeepGoing& keep_going,
                                              const SharedSamples& shared) const {
  const std::vector<int64_t> labels = grid_labels(config_, data.class_names());
  const int64_t batch = samples_of_micro_batch(config_);
  at::Tensor samples = dit::sample(dit_, options_of(config_).diffusion, draw_options(config_), labels, batch,
                                   keep_going, shared.share);
  if (!samples.defined()) return {};
  samples = unscaled(samples, options_of(config_).data);
  if (shared.join) {
    zero_others(samples, batch, shared.share);  // a shift may have moved them
    shared.join(samples);
  }
  return {{"samples", samples}, {"labels", at::tensor(labels, at::kLong)}};
}

}  // namespace dtk::dit
