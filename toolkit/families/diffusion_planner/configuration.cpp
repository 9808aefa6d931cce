#include "toolkit/families/diffusion_planner/configuration.h"

#include <dtk/models/diffusion_planner_modules.h>
#include <dtk/policies/advice.h>

#include "toolkit/config/defaults.h"
#include "toolkit/config/rule_check.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/diffusion/options.h"
#include "toolkit/families/diffusion_planner/options.h"

namespace dtk::diffusion_planner {
namespace {

using policies::advise;

const std::string of_loss = "diffusion_planner.loss.", of_process = "diffusion_planner.process.",
                  of_augmentation = "diffusion_planner.augmentation.";

bool augments(const AugmentationOptions& options) {
  return options.probability > 0 || options.smooth;
}

std::string useless_in_loss(const RunConfig& config, const std::string& name) {
  const LossOptions& loss = options_of(config).loss;
  const bool velocity = options_of(config).process.velocity;
  const bool of_border = is_one_of(name, {"border_margin", "border_points", "border_chunk"}),
             of_collision = is_one_of(name, {"vehicle_margin", "pedestrian_margin", "bicycle_margin"}),
             of_poses = is_one_of(name, {"lateral", "longitudinal", "heading", "speed_weight"}),
             of_velocities = is_one_of(name, {"integrated", "integrated_window"});
  // Upstream's frames tell neither borders, nor the ego's shape, nor turn indicators.
  const bool of_fork = of_border || of_collision ||
                       is_one_of(name, {"road_border", "collision", "turn_indicator", "unchanged_turn",
                                        "exploding_heading_gradient"});
  if (of_fork && options_of(config).model.upstream()) return "diffusion_planner.preset";
  if (loss.squared_error && (of_poses || of_velocities || name == "time_weights"))
    return of_loss + "squared_error";
  if (velocity ? of_poses : of_velocities) return of_process + "velocity";
  if (of_border && loss.road_border == 0) return of_loss + "road_border";
  if (of_collision && loss.collision == 0) return of_loss + "collision";
  if (name == "exploding_heading_gradient" && loss.road_border == 0 && loss.collision == 0)
    return of_loss + "road_border";
  if (name == "unchanged_turn" && loss.turn_indicator == 0) return of_loss + "turn_indicator";
  if (name == "ego_horizon" && loss.ego == 0) return of_loss + "ego";
  return "";
}

std::string useless_in_augmentation(const AugmentationOptions& augmentation, const std::string& name) {
  if (is_one_of(name, {"probability", "smooth"}) || augmentation.probability > 0) return "";
  return of_augmentation + "probability";
}

}  // namespace

bool Configuration::ignores(const std::string& key) const {
  return is_one_of(key, {"data.samples", "data.validation"});
}

HeldOut Configuration::held_out(const RunConfig& config) const {
  return {!options_of(config).data.held_out.empty(), "data.held_out", "data.held_out is not set"};
}

std::unique_ptr<OptionTables> Configuration::new_options() const {
  return std::make_unique<TablesOf<Options>>();
}

std::optional<int64_t> Configuration::heads(const RunConfig& config) const {
  return models::resolved(options_of(config).model).num_heads;
}

// What the published driving model of this preset was trained with, and where the policies act in it.
void Configuration::settle_defaults(LoadedConfig& loaded) const {
  const models::DiffusionPlannerOptions& model = options_of(loaded.config).model;
  Options& training = options_of(loaded.config);
  const std::string of_preset = "as preset " + policies::text_of(model.preset);
  const bool upstream = model.upstream();
  settle(loaded, "data.kind", loaded.config.data.kind, std::string("frames"), "of the driving model");
  settle(loaded, "diffusion_planner.process.prefix", training.process.prefix, !upstream, of_preset);
  settle(loaded, "diffusion_planner.loss.squared_error", training.loss.squared_error, upstream, of_preset);
  settle(loaded, "diffusion_planner.loss.neighbor", training.loss.neighbor, upstream ? 1.0 : 0.1, of_preset);
  settle(loaded, "diffusion_planner.augmentation.probability", training.augmentation.probability,
         upstream ? 0.0 : 0.5, upstream ? "upstream's frames do not tell the ego's shape" : of_preset);
  settle(loaded, "diffusion_planner.augmentation.smooth", training.augmentation.smooth, !upstream, of_preset);
  if (loaded.config.schedule.kind == ScheduleKind::epochs)
    settle(loaded, "schedule.epochs.lowered", loaded.config.epoch_schedule.lowered, !upstream, of_preset);
  settle(loaded, "sample.steps", loaded.config.sample.steps, DpmSolverOptions().steps, "as published");
  policies::PolicyOptions& policies = loaded.config.policies;
  settle(loaded, "policies.ema.decay", policies.ema.decay, 0.999, "as published");
  settle(loaded, "policies.ema.warmup", policies.ema.warmup, false, "as published");
  if (!models::problems(model).empty()) return;  // check_rules() says what is wrong
  settle(loaded, "policies.checkpoint.targets", policies.checkpoint.targets,
         models::checkpoint_targets(model), "the driving model's blocks");
  settle(loaded, "policies.precision.fp32", policies.precision.fp32, models::fp32_ends(model),
         "where poses and times enter and leave");
}

std::string Configuration::useless_because(const RunConfig& config, const std::string& key) const {
  const Options& training = options_of(config);
  if (key.starts_with(of_loss)) return useless_in_loss(config, key.substr(of_loss.size()));
  if (key.starts_with(of_augmentation))
    return useless_in_augmentation(training.augmentation, key.substr(of_augmentation.size()));
  if (key == of_process + "max_delay" && !training.process.prefix) return of_process + "prefix";
  if (key == "diffusion_planner.oldest_ego_history" && !options_of(config).model.use_ego_history)
    return "diffusion_planner.use_ego_history";
  return "";
}

void Configuration::check_model(const RuleCheck& rules) const {
  const RunConfig& config = rules.config();
  const auto found = models::problems(options_of(config).model);
  if (!found.empty()) rules.fail("diffusion_planner." + found.front().field, found.front().message);
  const Options& training = options_of(config);
  const bool upstream = options_of(config).model.upstream();
  const std::string preset = setting("diffusion_planner.preset", options_of(config).model.preset);
  if (training.process.prefix == upstream) {
    const std::string key = of_process + "prefix";
    rules.fail(key, fmt::format("{} does not go with {}; {}", setting(key, training.process.prefix), preset,
                                advise(key, toml_text(!upstream))));
  }
  const int64_t future = *models::resolved(options_of(config).model).future_len;
  const std::string future_text = setting("diffusion_planner.future_len", future);
  if (training.process.prefix && training.process.max_delay >= future) {
    const std::string key = of_process + "max_delay";
    rules.fail(key,
               fmt::format("{} may give the ego's whole future as truth; allowed: [0, {}] with {}",
                           setting(key, training.process.max_delay), toml_text(future - 1), future_text));
  }
  const AugmentationOptions& augmentation = training.augmentation;
  if (upstream && augments(augmentation)) {
    const std::string probability = of_augmentation + "probability", smooth = of_augmentation + "smooth";
    rules.fail(
        augmentation.smooth ? smooth : probability,
        fmt::format("frames of {} do not tell the ego's shape, which the augmentation needs; {} and {}",
                    preset, advise(probability, "0.0"), advise(smooth, "false")));
  }
  if (augments(augmentation) && augmentation.rebuilt >= future) {
    const std::string key = of_augmentation + "rebuilt";
    rules.fail(key, fmt::format("{} is not within the future; allowed: [2, {}] with {}",
                                setting(key, augmentation.rebuilt), toml_text(future - 1), future_text));
  }
  const LossOptions& loss = training.loss;
  const bool fork = !upstream && (loss.turn_indicator > 0 || loss.road_border > 0 || loss.collision > 0);
  if (loss.ego == 0 && loss.neighbor == 0 && !fork) {
    rules.fail(of_loss + "ego", "every term of [diffusion_planner.loss] has weight 0; set " + of_loss +
                                    "ego above 0, which is the usual one");
  }
  rules.check_drawn("sample.frames", options_of(config).sample.frames);
}

// Of what a preset says.
std::string Configuration::derived_value(const RunConfig& config, const std::string& key) const {
  const models::DiffusionPlannerOptions& model = options_of(config).model;
  std::string line;
  if (!models::problems(model).empty()) return line;
  models::DiffusionPlannerOptions sizes = models::resolved(model);
  models::DiffusionPlannerOptions::fields(
      sizes, [&](const std::string& name, const auto& value, const auto&...) {
        if (key == "diffusion_planner." + name && is_set(value))
          line = fmt::format("{} = {} ({})", name, toml_text(value), policies::text_of(model.preset));
      });
  return line;
}

}  // namespace dtk::diffusion_planner
