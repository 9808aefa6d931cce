// Training of the driving model as a program writes it: scenes, objective, policies, optimizer and ledger.
// Run for real, or planned.
#pragma once
#include <ATen/ATen.h>
#include <dtk/planner/explain.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/counted_blocks.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "support/diffusion_planner/model.h"
#include "support/diffusion_planner/policies.h"
#include "toolkit/families/diffusion_planner/losses.h"
#include "toolkit/families/diffusion_planner/noise.h"
#include "toolkit/train/optimizer.h"

namespace dtk::test {

struct DrivingJob {
  models::DiffusionPlannerOptions model = {};
  policies::PolicyOptions policies = no_policies();
  int64_t batch = 2;
};

class DrivingTraining {
 public:
  DrivingTraining(const DrivingJob& job, c10::Device device)
      : model_(built(job.model, device)),
        optimizer_({}, model_.parameters()),
        policies_(put_in(job.policies, model_)),
        ledger_(policies::saved_tensor_ledger()),
        noise_(policies::make_generator(device, 5)) {
    const policies::OwnerScope owner(policies::Category::data, "batch");
    const models::DiffusionPlannerOptions& options = model_.options();
    const auto fp32 = at::TensorOptions().device(device).dtype(at::kFloat);
    const int64_t others = *options.predicted_neighbor_num, steps = *options.future_len;
    scene_ = full_scene(options, job.batch, device);
    truth_ = {at::ones({job.batch, 10}, fp32), scene_.neighbor_agents_past,
              at::ones({job.batch, steps, 4}, fp32), at::ones({job.batch, others, steps, 4}, fp32),
              at::zeros({job.batch, others, steps}, fp32.dtype(at::kBool))};
    process_.prefix = !options.upstream();
    losses_.squared_error = options.upstream();
  }

  /// Of one forward pass in training, as far as "loss" for the ledger.
  at::Tensor loss() {
    const policies::SavedTensorScope ledger(ledger_);
    const policies::ModulePathScope path("loss");
    const auto scope = policies_.forward_scope();
    diffusion_planner::Supervision given;
    given.targets = diffusion_planner::targets_of(truth_, process_);
    given.ego_current_state = truth_.ego_current_state;
    given.neighbor_agents_past = truth_.neighbor_agents_past;
    given.neighbors_future = truth_.neighbors_future;
    given.absent = truth_.absent;
    given.line_strings = scene_.line_strings;
    given.ego_shape = scene_.ego_shape;
    given.turn_indicators = scene_.turn_indicators;
    diffusion_planner::NoisedSample sample = diffusion_planner::noised_sample(
        given.targets, diffusion_planner::draw_noise(given.targets, process_, noise_), process_);
    const models::DrivingContext context = model_.encode(scene_, true);
    const at::Tensor predicted =
        model_.denoise(std::move(sample.x), std::move(sample.t), context, /*training=*/true);
    at::Tensor logits;
    if (process_.prefix) logits = model_.turn_indicator(given.targets.select(1, 0), context.encoding);
    return diffusion_planner::losses_of(predicted, logits, given, process_, losses_).total(losses_);
  }

  void step() {
    {
      const policies::PhaseScope phase("forward");
      at::Tensor sum = loss();
      const policies::PhaseScope backward("backward");
      torch::autograd::backward({std::exchange(sum, {})}, {});
    }
    const policies::PhaseScope phase("optimizer");
    policies_.before_step();
    optimizer_.step(1e-4);
    optimizer_.release_gradients();
    policies_.after_step();
  }

  policies::PolicySet& policies() { return policies_; }
  models::DiffusionPlanner& model() { return model_; }

 private:
  static models::DiffusionPlanner built(const models::DiffusionPlannerOptions& options, c10::Device device) {
    const policies::OwnerScope owner(policies::Category::parameters, "model");
    models::DiffusionPlanner model(options, device);
    planner::claim_state(model.parameters());
    return model;
  }

  models::DiffusionPlanner model_;
  AdamW optimizer_;
  policies::PolicySet policies_;
  const std::shared_ptr<policies::SavedTensorLayer> ledger_;
  at::Generator noise_;
  models::DrivingScene scene_;
  diffusion_planner::TruePaths truth_;
  diffusion_planner::ProcessOptions process_;
  diffusion_planner::LossOptions losses_;
};

using Bytes = std::map<std::string, int64_t>;

/// What one forward pass keeps for backward, by module: each storage once, without parameters and their
/// casts. Of the accounts of `device`, which must be counted.
inline Bytes kept_by_forward(const DrivingJob& job, c10::Device device) {
  DrivingTraining training(job, device);
  const at::Tensor loss = training.loss();
  const policies::MemoryAccounts& accounts =
      device.is_cpu() ? policies::cpu_accounts() : policies::device_accounts();
  return accounts.live().items()[policies::Category::saved];
}

inline Bytes planned_kept(const DrivingJob& job, c10::Device device) {
  Bytes kept;
  planner::simulate(device, [&](const auto&) { kept = kept_by_forward(job, device); });
  return kept;
}

/// What one more sample adds. To two: the storages of one have fewer copies.
inline Bytes planned_per_sample(DrivingJob job, c10::Device device) {
  job.batch = 3;
  Bytes more = planned_kept(job, device);
  job.batch = 2;
  for (const auto& [path, bytes] : planned_kept(job, device)) more[path] -= bytes;
  return more;
}

inline int64_t sum(const Bytes& bytes) {
  int64_t total = 0;
  for (const auto& [path, count] : bytes) total += count;
  return total;
}

/// By models::part_of().
inline Bytes by_part(const Bytes& bytes) {
  Bytes parts;
  for (const auto& [path, count] : bytes) parts[std::string(models::part_of(path))] += count;
  return parts;
}

/// Two steps, the second a steady one.
inline planner::SimulationResult planned_training(const DrivingJob& job, c10::Device device) {
  return planner::simulate(device, [&](const auto&) {
    DrivingTraining training(job, device);
    for (int i = 0; i < 2; ++i) training.step();
  });
}

}  // namespace dtk::test
