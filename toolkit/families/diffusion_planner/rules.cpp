// The rules of [diffusion_planner] and its sub-tables.
#include "toolkit/config/rules.h"

#include "toolkit/config/toml_text.h"

namespace dtk {
namespace {

const std::string of_loss = "diffusion_planner.loss.", of_process = "diffusion_planner.process.",
                  of_augmentation = "diffusion_planner.augmentation.";

bool augments(const diffusion_planner::AugmentationOptions& options) {
  return options.probability > 0 || options.smooth;
}

std::string useless_in_loss(const RunConfig& config, const std::string& name) {
  const diffusion_planner::LossOptions& loss = config.diffusion_planner_training.loss;
  const bool velocity = config.diffusion_planner_training.process.velocity;
  const bool of_border = is_one_of(name, {"border_margin", "border_points", "border_chunk"}),
             of_collision = is_one_of(name, {"vehicle_margin", "pedestrian_margin", "bicycle_margin"}),
             of_poses = is_one_of(name, {"lateral", "longitudinal", "heading", "speed_weight"}),
             of_velocities = is_one_of(name, {"integrated", "integrated_window"});
  // Upstream's frames tell neither borders, nor the ego's shape, nor turn indicators.
  const bool of_fork = of_border || of_collision ||
                       is_one_of(name, {"road_border", "collision", "turn_indicator", "unchanged_turn",
                                        "exploding_heading_gradient"});
  if (of_fork && config.diffusion_planner.upstream())
    return setting("diffusion_planner.preset", config.diffusion_planner.preset);
  if (loss.squared_error && (of_poses || of_velocities || name == "time_weights"))
    return setting(of_loss + "squared_error", true);
  if (velocity ? of_poses : of_velocities) return setting(of_process + "velocity", velocity);
  if (of_border && loss.road_border == 0) return setting(of_loss + "road_border", loss.road_border);
  if (of_collision && loss.collision == 0) return setting(of_loss + "collision", loss.collision);
  if (name == "exploding_heading_gradient" && loss.road_border == 0 && loss.collision == 0)
    return setting(of_loss + "road_border", loss.road_border);
  if (name == "unchanged_turn" && loss.turn_indicator == 0)
    return setting(of_loss + "turn_indicator", loss.turn_indicator);
  if (name == "ego_horizon" && loss.ego == 0) return setting(of_loss + "ego", loss.ego);
  return "";
}

std::string useless_in_augmentation(const diffusion_planner::AugmentationOptions& augmentation,
                                    const std::string& name) {
  if (is_one_of(name, {"probability", "smooth"}) || augmentation.probability > 0) return "";
  // What is not shifted is rebuilt all the same before it is smoothed.
  if (name == "rebuilt" && augmentation.smooth) return "";
  return setting(of_augmentation + "probability", augmentation.probability);
}

}  // namespace

std::string useless_of_diffusion_planner(const RunConfig& config, const std::string& key) {
  const TrainingOptions& training = config.diffusion_planner_training;
  if (key.starts_with(of_loss)) return useless_in_loss(config, key.substr(of_loss.size()));
  if (key.starts_with(of_augmentation))
    return useless_in_augmentation(training.augmentation, key.substr(of_augmentation.size()));
  if (key == of_process + "max_delay" && !training.process.prefix)
    return setting(of_process + "prefix", training.process.prefix);
  if (key == "diffusion_planner.oldest_ego_history" && !config.diffusion_planner.use_ego_history)
    return setting("diffusion_planner.use_ego_history", config.diffusion_planner.use_ego_history);
  return "";
}

std::optional<ConfigProblem> problem_of_diffusion_planner(const RunConfig& config) {
  const auto found = models::problems(config.diffusion_planner);
  if (!found.empty()) return ConfigProblem{"diffusion_planner." + found.front().field, found.front().message};
  const TrainingOptions& training = config.diffusion_planner_training;
  const bool upstream = config.diffusion_planner.upstream();
  const std::string preset = setting("diffusion_planner.preset", config.diffusion_planner.preset);
  if (training.process.prefix == upstream) {
    const std::string key = of_process + "prefix";
    return ConfigProblem{key, setting(key, training.process.prefix) + " does not go with " + preset +
                                  "; set " + setting(key, !upstream)};
  }
  const int64_t future = *models::resolved(config.diffusion_planner).future_len;
  const std::string future_text = setting("diffusion_planner.future_len", future);
  if (training.process.prefix && training.process.max_delay >= future) {
    const std::string key = of_process + "max_delay";
    return ConfigProblem{key, setting(key, training.process.max_delay) +
                                  " may give the ego's whole future as truth; allowed: [0, " +
                                  toml_text(future - 1) + "] with " + future_text};
  }
  const diffusion_planner::AugmentationOptions& augmentation = training.augmentation;
  if (upstream && augments(augmentation)) {
    const std::string probability = of_augmentation + "probability", smooth = of_augmentation + "smooth";
    return ConfigProblem{augmentation.smooth ? smooth : probability,
                         "frames of " + preset +
                             " do not tell the ego's shape, which the augmentation needs; " + "set " +
                             setting(probability, 0.0) + " and " + setting(smooth, false)};
  }
  if (augments(augmentation) && augmentation.rebuilt >= future) {
    const std::string key = of_augmentation + "rebuilt";
    return ConfigProblem{key, setting(key, augmentation.rebuilt) +
                                  " is not within the future; allowed: [2, " + toml_text(future - 1) +
                                  "] with " + future_text};
  }
  const diffusion_planner::LossOptions& loss = training.loss;
  const bool fork = !upstream && (loss.turn_indicator > 0 || loss.road_border > 0 || loss.collision > 0);
  if (loss.ego == 0 && loss.neighbor == 0 && !fork) {
    return ConfigProblem{of_loss + "ego", "every term of [diffusion_planner.loss] has weight 0; set " +
                                              of_loss + "ego above 0, which is the usual one"};
  }
  return std::nullopt;
}

}  // namespace dtk
