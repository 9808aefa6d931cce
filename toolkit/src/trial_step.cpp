#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/toolkit/model_policies.h>
#include <dtk/toolkit/streams.h>
#include <dtk/toolkit/trial_step.h>
#include <torch/csrc/autograd/autograd.h>

namespace dtk {
namespace {

models::Dit with_own_seam(const models::Dit& model) {
  models::Dit copy = model;
  copy.seam = models::Seam();
  return copy;
}

struct GradientRelease {
  const models::Dit& model;
  ~GradientRelease() {
    for (const auto& [name, parameter] : model.parameters()) parameter.mutable_grad().reset();
  }
};

policies::PolicyOptions without_ema(policies::PolicyOptions options) {
  options.ema.enabled = policies::Enabled::off;
  return options;
}

}  // namespace

TrialStep::TrialStep(const RunConfig& config, const models::Dit& model,
                     const policies::PolicyOptions& options, int64_t batch)
    : config_(config),
      batch_(batch),
      model_(with_own_seam(model)),
      policies_(put_policies_in(without_ema(options), model_)),
      objective_(make_objective(config.diffusion, config.model.learn_sigma,
                                model.parameters().front().second.device())),
      noise_(policies::make_generator(model.parameters().front().second.device(),
                                      stream_seed(config.train.seed, "trial"))) {}

void TrialStep::run() {
  const models::DitOptions& shape = model_.options();
  const c10::Device device = model_.parameters().front().second.device();
  std::string random = policies::generator_state(at::globalContext().defaultGenerator(device));
  const policies::DefaultGeneratorScope generator(device, random);
  const GradientRelease release{model_};
  at::Tensor loss;
  {
    std::optional<policies::SavedTensorScope> ledger;
    if (config_.memory.ledger) ledger.emplace(policies::saved_tensor_ledger());
    const policies::ModulePathScope path("loss");
    const auto scope = policies_.forward_scope();
    at::Tensor images, labels;
    {
      const policies::OwnerScope owner(policies::Category::data, "trial");
      const auto on_device = at::TensorOptions().device(device);
      images = at::rand({batch_, shape.channels, shape.image_size, shape.image_size}, noise_, on_device);
      labels = at::zeros({batch_}, on_device.dtype(at::kLong));
    }
    const Denoiser denoiser = [this](at::Tensor x, at::Tensor t, at::Tensor y) {
      return model_.forward(std::move(x), std::move(t), std::move(y), /*training=*/true);
    };
    loss = objective_->loss(denoiser, std::move(images), std::move(labels), noise_);
  }
  torch::autograd::backward({loss}, {});
}

}  // namespace dtk
