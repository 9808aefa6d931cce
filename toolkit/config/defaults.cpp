#include "toolkit/config/defaults.h"

#include <dtk/models/diffusion_planner_modules.h>

#include <stdexcept>

#include "toolkit/config/diffusion_names.h"
#include "toolkit/config/dpm_solver_options.h"
#include "toolkit/config/respacing.h"
#include "toolkit/config/toml_text.h"

namespace dtk {
namespace {

template <class T>
void settle(LoadedConfig& loaded, const std::string& key, T& member, const T& value,
            const std::string& reason) {
  if (loaded.locations.count(key) > 0) return;
  member = value;
  loaded.origins[key] = "default: " + reason;
}

// The published code learns a variance beside ε; with v and x_0 a fixed one is usual.
void settle_learn_sigma(LoadedConfig& loaded) {
  const std::string& objective = loaded.config.diffusion.objective;
  const std::string reason = objective == "rectified_flow" ? "rectified flow predicts no variance"
                             : objective == "epsilon"      ? "as the original DiT"
                                                           : "usual with objective " + objective;
  settle(loaded, "model.learn_sigma", loaded.config.model.learn_sigma, objective == "epsilon", reason);
}

void settle_sampler(LoadedConfig& loaded) {
  const std::string& objective = loaded.config.diffusion.objective;
  settle(loaded, "sample.sampler", loaded.config.sample.sampler, samplers_for(objective).front(),
         "usual with objective " + objective);
}

void settle_steps(LoadedConfig& loaded) {
  SampleOptions& sample = loaded.config.sample;
  const int64_t all = loaded.config.diffusion.steps, usual = default_steps(sample.sampler);
  if (!has_diffusion_steps(sample.sampler) || (usual <= all && !sample.respacing)) {
    return settle(loaded, "sample.steps", sample.steps, usual, "usual with " + sample.sampler);
  }
  if (!sample.respacing) {
    return settle(loaded, "sample.steps", sample.steps, all, "all that the diffusion has");
  }
  try {
    const auto kept = static_cast<int64_t>(respaced_steps(*sample.respacing, all).size());
    settle(loaded, "sample.steps", sample.steps, kept,
           "what sample.respacing = " + toml_text(*sample.respacing) + " gives");
  } catch (const std::invalid_argument&) {  // check_rules() says what is wrong with it
  }
}

// What the published planner of this preset was trained with, and the policies' locations in it.
void settle_diffusion_planner(LoadedConfig& loaded) {
  const models::DiffusionPlannerOptions& model = loaded.config.diffusion_planner;
  TrainingOptions& training = loaded.config.diffusion_planner_training;
  const std::string of_preset = "as preset " + model.preset;
  const bool upstream = model.upstream();
  settle(loaded, "data.kind", loaded.config.data.kind, std::string("frames"), "of the driving planner");
  settle(loaded, "diffusion_planner.process.prefix", training.process.prefix, !upstream, of_preset);
  settle(loaded, "diffusion_planner.loss.squared_error", training.loss.squared_error, upstream, of_preset);
  settle(loaded, "diffusion_planner.loss.neighbor", training.loss.neighbor, upstream ? 1.0 : 0.1, of_preset);
  settle(loaded, "diffusion_planner.augmentation.probability", training.augmentation.probability,
         upstream ? 0.0 : 0.5, upstream ? "upstream's frames do not tell the ego's shape" : of_preset);
  settle(loaded, "diffusion_planner.augmentation.smooth", training.augmentation.smooth, !upstream, of_preset);
  if (loaded.config.schedule.kind == "epochs")
    settle(loaded, "schedule.epochs.lowered", loaded.config.epoch_schedule.lowered, !upstream, of_preset);
  settle(loaded, "sample.steps", loaded.config.sample.steps, DpmSolverOptions().steps, "as published");
  policies::PolicyOptions& policies = loaded.config.policies;
  settle(loaded, "policies.ema.decay", policies.ema.decay, 0.999, "as published");
  settle(loaded, "policies.ema.warmup", policies.ema.warmup, false, "as published");
  if (!models::problems(model).empty()) return;  // check_rules() says what is wrong
  settle(loaded, "policies.checkpoint.targets", policies.checkpoint.targets,
         models::checkpoint_targets(model), "the planner's blocks");
  settle(loaded, "policies.precision.fp32", policies.precision.fp32, models::fp32_ends(model),
         "where poses and times enter and leave");
}

}  // namespace

void settle_defaults(LoadedConfig& loaded) {
  if (loaded.config.drives()) return settle_diffusion_planner(loaded);
  settle_learn_sigma(loaded);
  settle_sampler(loaded);
  settle_steps(loaded);
}

}  // namespace dtk
