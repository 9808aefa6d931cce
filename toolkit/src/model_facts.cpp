#include <dtk/toolkit/model_facts.h>
#include <dtk/toolkit/model_flops.h>
#include <dtk/toolkit/sampling.h>

#include <cstdio>

namespace dtk {

std::string model_text(const RunConfig& config, int64_t parameters) {
  const models::DitOptions model = models::resolved(config.model);
  char millions[32];
  std::snprintf(millions, sizeof millions, "%.4g", static_cast<double>(parameters) / 1e6);
  const std::string name = model.name == "custom" ? "DiT" : model.name;
  return name + ", " + millions + " M parameters: depth " + std::to_string(*model.depth) + ", width " +
         std::to_string(*model.hidden) + ", " + std::to_string(*model.heads) + " heads, patch " +
         std::to_string(*model.patch) + ", " + std::to_string(model.tokens()) + " tokens; " +
         std::to_string(model.channels) + "x" + std::to_string(model.image_size) + "x" +
         std::to_string(model.image_size) + ", " + std::to_string(model.classes) + " classes";
}

int64_t tokens_per_sample(const RunConfig& config) {
  return models::resolved(config.model).tokens();
}

double training_flops_per_sample(const RunConfig& config) {
  return static_cast<double>(training_flops_per_image(config.model));
}

std::string drawn_text(const RunConfig& config) {
  if (config.sample.per_class == 0) return "";
  return std::to_string(grid_classes(config) * config.sample.per_class) +
         (draws_pictures(config) ? " images in " : " latents in ") + std::to_string(config.sample.steps) +
         " steps";
}

bool draws_pictures(const RunConfig& config) {
  return are_images(config.model.channels);
}

Image picture_of(const RunConfig& config, const std::vector<NamedTensor>& samples) {
  return image_grid(samples.front().tensor, config.sample.per_class, /*padding=*/2, /*scale=*/2);
}

std::string tensors_text(const RunConfig& config) {
  return "latents of " + std::to_string(config.model.channels) + " channels";
}

}  // namespace dtk
