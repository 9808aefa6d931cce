#include "toolkit/train/model_facts.h"

#include <cstdio>

#include "toolkit/diffusion/sampling.h"
#include "toolkit/train/model_flops.h"

namespace dtk {

namespace {

std::string in_millions(int64_t count) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g M", static_cast<double>(count) / 1e6);
  return text;
}

std::string diffusion_planner_text(const models::DiffusionPlannerOptions& given, int64_t parameters) {
  const models::DiffusionPlannerOptions model = models::resolved(given);
  return "Diffusion-Planner " + model.preset + ", " + in_millions(parameters) + " parameters: width " +
         std::to_string(*model.hidden_dim) + ", " + std::to_string(*model.num_heads) + " heads; " +
         std::to_string(model.encoder_tokens()) + " objects, " + std::to_string(model.decoder_tokens()) +
         " trajectories of " + std::to_string(*model.future_len) + " steps";
}

}  // namespace

std::string model_text(const RunConfig& config, int64_t parameters) {
  if (config.drives()) return diffusion_planner_text(config.diffusion_planner, parameters);
  const models::DitOptions model = models::resolved(config.model);
  const std::string name = model.name == "custom" ? "DiT" : model.name;
  return name + ", " + in_millions(parameters) + " parameters: depth " + std::to_string(*model.depth) +
         ", width " + std::to_string(*model.hidden) + ", " + std::to_string(*model.heads) + " heads, patch " +
         std::to_string(*model.patch) + ", " + std::to_string(model.tokens()) + " tokens; " +
         std::to_string(model.channels) + "x" + std::to_string(model.image_size) + "x" +
         std::to_string(model.image_size) + ", " + std::to_string(model.classes) + " classes";
}

std::string sample_name(const RunConfig& config) {
  return config.drives() ? "frames" : "images";
}

int64_t tokens_per_sample(const RunConfig& config) {
  if (config.drives())
    return config.diffusion_planner.encoder_tokens() + config.diffusion_planner.decoder_tokens();
  return models::resolved(config.model).tokens();
}

double training_flops_per_sample(const RunConfig& config, int64_t planned_forward) {
  constexpr double kPasses = 3;  // forward, and backward as two
  if (config.drives())
    return kPasses * static_cast<double>(planned_forward) / static_cast<double>(config.data.batch);
  return static_cast<double>(training_flops_per_image(config.model));
}

std::string drawn_text(const RunConfig& config) {
  if (config.drives()) {
    return config.sample.frames == 0 ? ""
                                     : "trajectories of up to " + std::to_string(config.sample.frames) +
                                           " frames in " + std::to_string(config.sample.steps) + " steps";
  }
  if (config.sample.per_class == 0) return "";
  return std::to_string(grid_classes(config) * config.sample.per_class) +
         (draws_pictures(config) ? " images in " : " latents in ") + std::to_string(config.sample.steps) +
         " steps";
}

std::string samples_key(const RunConfig& config) {
  return config.drives() ? "sample.frames" : "sample.per_class";
}

bool draws_pictures(const RunConfig& config) {
  return !config.drives() && are_images(config.model.channels);
}

Image picture_of(const RunConfig& config, const std::vector<NamedTensor>& samples) {
  return image_grid(samples.front().tensor, config.sample.per_class, /*padding=*/2, /*scale=*/2);
}

std::string tensors_text(const RunConfig& config) {
  if (config.drives()) return "trajectories";
  return "latents of " + std::to_string(config.model.channels) + " channels";
}

}  // namespace dtk
