// The driving model Diffusion-Planner at the size of tests/fixtures/diffusion_planner/model.safetensors,
// with the weights that the original had when it made that file.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/diffusion_planner.h>

#include <cmath>
#include <string>

#include "support/diffusion_planner/preset.h"
#include "support/fixture.h"

namespace dtk::test {

inline models::DiffusionPlannerOptions small_diffusion_planner_options(const std::string& preset) {
  models::DiffusionPlannerOptions options = diffusion_planner_preset(preset);
  options.hidden_dim = 64;
  options.num_heads = 4;
  options.encoder_mixer_depth = options.encoder_fusion_depth = options.decoder_depth = 2;
  options.agent_num = 6;
  options.predicted_neighbor_num = 4;
  options.static_objects_num = options.route_num = 3;
  options.lane_num = 7;
  options.encoder_dropout = options.decoder_dropout = 0;
  if (options.upstream()) return options;
  options.polygon_num = 2;
  options.line_string_num = 4;
  options.ego_history_dropout = 0;
  return options;
}

/// No random numbers, so that any program can make them: of parameter k in order, from 2·frac(43758.5453 ·
/// sin(12.9898 i + 78.233 k)) - 1 at its element i, in float64.
inline void set_weights(const models::NamedTensors& parameters) {
  at::NoGradGuard no_grad;
  double k = 0;
  for (const auto& [name, parameter] : parameters) {
    at::Tensor u = at::arange(parameter.numel(), at::kDouble) * 12.9898 + 78.233 * k++;
    u = u.sin() * 43758.5453;
    u = 2 * (u - u.floor()) - 1;
    if (name.ends_with("bias")) {
      u = 0.2 * u;
    } else if (parameter.dim() == 1) {
      u = 1 + 0.2 * u;
    } else if (parameter.dim() == 2) {
      u = u * std::sqrt(6.0 / static_cast<double>(parameter.size(0) + parameter.size(1)));
    }
    parameter.detach().copy_(u.view(parameter.sizes()));
  }
}

inline models::DiffusionPlanner small_diffusion_planner(const std::string& preset) {
  models::DiffusionPlanner model(small_diffusion_planner_options(preset), at::kCPU);
  set_weights(model.parameters());
  return model;
}

/// The three scenes of the file. Of what a preset has less, the last steps and the first features.
inline models::DrivingScene small_scene(const Fixture& fixture, bool upstream) {
  models::DrivingScene scene;
  models::DrivingScene::fields(
      scene, [&](const std::string& key, at::Tensor& tensor) { tensor = fixture.at("in." + key).clone(); });
  if (!upstream) return scene;
  scene.neighbor_agents_past = scene.neighbor_agents_past.narrow(2, 10, 21);
  scene.lanes = scene.lanes.narrow(3, 0, 12);
  scene.route_lanes = scene.route_lanes.narrow(3, 0, 12);
  return scene;
}

/// Scenes of any size with everything present; `options` may leave sizes to the preset.
inline models::DrivingScene full_scene(const models::DiffusionPlannerOptions& options, int64_t n,
                                       c10::Device device) {
  models::DrivingScene scene;
  const models::SceneShapes shapes = models::scene_shapes(options);
  models::DrivingScene::fields(scene, [&](const std::string& key, at::Tensor& tensor) {
    for (const auto& [name, shape] : shapes) {
      if (name != key) continue;
      std::vector<int64_t> sizes = {n};
      sizes.insert(sizes.end(), shape.begin(), shape.end());
      const bool flag = key.find("has_speed_limit") != std::string::npos;
      tensor = at::ones(sizes, at::TensorOptions().device(device).dtype(flag ? at::kBool : at::kFloat));
    }
  });
  return scene;
}

/// x (n, P, T + 1, 4) and t for it.
inline std::pair<at::Tensor, at::Tensor> noise_at_half(const models::DiffusionPlannerOptions& options,
                                                       int64_t n, c10::Device device) {
  const auto all = models::resolved(options);
  const auto fp32 = at::TensorOptions().device(device).dtype(at::kFloat);
  const int64_t actors = all.decoder_tokens(), steps = 1 + *all.future_len;
  at::Tensor t = all.upstream() ? at::full({n}, 0.5, fp32) : at::full({n, actors, steps, 1}, 0.5, fp32);
  return {at::ones({n, actors, steps, 4}, fp32), t};
}

}  // namespace dtk::test
