#include "toolkit/train/trial_step.h"

#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/policy_kind.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include "toolkit/core/random_streams.h"
#include "toolkit/train/apply_policies.h"

namespace dtk {
namespace {

struct GradientRelease {
  const TrainableModel& model;
  ~GradientRelease() {
    for (const auto& [name, parameter] : model.parameters()) parameter.mutable_grad().reset();
  }
};

policies::PolicyOptions of_passes(policies::PolicyOptions options) {
  for (const policies::PolicyKind* const kind : policies::policy_kinds())
    if (!kind->acts_without_step()) kind->switch_off(options);
  return options;
}

}  // namespace

TrialStep::TrialStep(const RunConfig& config, const TrainableModel& model,
                     const policies::PolicyOptions& options, int64_t batch)
    : config_(config),
      batch_(batch),
      model_(model.with_own_seam()),
      policies_(put_policies_in(of_passes(options), *model_)),
      noise_(policies::make_generator(model.device(), stream_seed(config.train.seed, "trial"))) {}

void TrialStep::run() {
  const c10::Device device = model_->device();
  const policies::DefaultGeneratorScope generator(device);
  const GradientRelease release{*model_};
  at::Tensor loss;
  {
    std::optional<policies::SavedTensorScope> ledger;
    if (config_.memory.ledger) ledger.emplace(policies::saved_tensor_ledger());
    const policies::ModulePathScope path("loss");
    const auto scope = policies_.forward_scope();
    Batch batch;
    {
      const policies::OwnerScope owner(policies::Category::data, "trial");
      batch = model_->made_up_batch(batch_, noise_);
    }
    loss = model_->loss(std::move(batch), noise_, /*training=*/true);
  }
  torch::autograd::backward({loss}, {});
}

}  // namespace dtk
