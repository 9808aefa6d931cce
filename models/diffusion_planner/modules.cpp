#include <dtk/models/diffusion_planner_modules.h>

namespace dtk::models {
namespace {

using Paths = std::vector<std::string>;

// UP wraps both halves in modules of the same name.
std::string encoder(const DiffusionPlannerOptions& options) {
  return options.upstream() ? "encoder.encoder." : "encoder.";
}

std::string dit(const DiffusionPlannerOptions& options) {
  return options.upstream() ? "decoder.decoder.dit." : "decoder.dit.";
}

bool has(std::string_view path, std::string_view component) {
  return path.find(component) != std::string_view::npos;
}

}  // namespace

Paths mixer_blocks(const DiffusionPlannerOptions& options) {
  const bool upstream = resolved(options).upstream();
  Paths kinds = {"neighbor", "lane"};
  if (!upstream) kinds = {"ego", "neighbor", "lane", "route", "polygon", "line_string"};
  Paths paths;
  for (const std::string& kind : kinds) paths.push_back(encoder(options) + kind + "_encoder.blocks.*");
  if (upstream) paths.push_back(dit(options) + "route_encoder.Mixer");
  return paths;
}

Paths transformer_blocks(const DiffusionPlannerOptions& options) {
  const DiffusionPlannerOptions all = resolved(options);
  return {encoder(all) + "fusion.blocks.*", dit(all) + "blocks.*"};
}

Paths checkpoint_targets(const DiffusionPlannerOptions& options) {
  Paths paths = mixer_blocks(options);
  for (std::string& path : transformer_blocks(options)) paths.push_back(std::move(path));
  return paths;
}

Paths fp32_ends(const DiffusionPlannerOptions& options) {
  const DiffusionPlannerOptions all = resolved(options);
  return {dit(all) + "preproj.fc1", dit(all) + (all.upstream() ? "t_embedder.mlp.0" : "t_embedder.fc1"),
          dit(all) + "final_layer.proj.4"};
}

std::string_view part_of(std::string_view path) {
  if (path.starts_with("encoder.")) return has(path, ".fusion.") ? "fusion" : "scene encoders";
  if (!path.starts_with("decoder.")) return "objective";
  if (has(path, ".route_encoder")) return "route encoder";
  if (has(path, ".dit.blocks.")) return "DiT blocks";
  return has(path, ".dit.") ? "DiT projections" : "turn indicator";
}

}  // namespace dtk::models
