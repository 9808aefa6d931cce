// The driving model and frames of the sizes in tests/fixtures/diffusion_planner/frames, for tests of its
// objective.
#pragma once
#include <ATen/ATen.h>

#include <string>

#include "support/diffusion_planner/model.h"
#include "support/diffusion_planner/samples.h"
#include "toolkit/families/diffusion_planner/frames.h"
#include "toolkit/families/diffusion_planner/layout.h"
#include "toolkit/families/diffusion_planner/objective.h"

namespace dtk::test {

inline models::DiffusionPlannerOptions frame_diffusion_planner_options(const std::string& preset) {
  models::DiffusionPlannerOptions options = small_diffusion_planner_options(preset);
  options.agent_num = options.predicted_neighbor_num = 8;
  options.lane_num = 6;
  return options;
}

/// What a preset's model is trained with: H's objective, for "UP" upstream's (one time a sample, squared
/// errors, neighbours as heavy as the ego; no augmentation, because its frames do not tell the ego's shape).
inline diffusion_planner::TrajectoryObjectiveOptions objective_options_of(
    const models::DiffusionPlannerOptions& model) {
  diffusion_planner::TrajectoryObjectiveOptions options;
  options.scales = diffusion_planner::published_scales(diffusion_planner::sizes_of(model).lane_features);
  if (!model.upstream()) {
    options.augmentation.emplace();
    return options;
  }
  options.process.prefix = false;
  options.loss.squared_error = true;
  options.loss.neighbor = 1;
  return options;
}

/// Dropout is off, so that only the objective draws numbers.
inline models::DiffusionPlanner frame_diffusion_planner(const std::string& preset,
                                                        c10::Device device = at::kCPU) {
  models::DiffusionPlanner model(frame_diffusion_planner_options(preset), device);
  set_weights(model.parameters());
  return model;
}

/// What is there in the frames of preset "UP": the last 21 past steps, 12 features of lanes, fewer arrays.
inline diffusion_planner::FrameBatch upstream_frames(const diffusion_planner::FrameBatch& frames) {
  diffusion_planner::FrameBatch batch;
  batch.ego_current_state = frames.ego_current_state;
  batch.ego_agent_future = frames.ego_agent_future;
  batch.neighbor_agents_past = frames.neighbor_agents_past.narrow(2, 10, 21);
  batch.neighbor_agents_future = frames.neighbor_agents_future;
  batch.static_objects = frames.static_objects;
  batch.lanes = frames.lanes.narrow(3, 0, 12);
  batch.lanes_speed_limit = frames.lanes_speed_limit;
  batch.lanes_has_speed_limit = frames.lanes_has_speed_limit;
  batch.route_lanes = frames.route_lanes.narrow(3, 0, 12);
  batch.route_lanes_speed_limit = frames.route_lanes_speed_limit;
  batch.route_lanes_has_speed_limit = frames.route_lanes_has_speed_limit;
  return batch;
}

/// frame_a, frame_b and frame_c as they are stored.
inline diffusion_planner::FrameBatch golden_frames(const std::string& preset) {
  const diffusion_planner::Frames frames(std::string(DTK_FIXTURES) + "/diffusion_planner/frames/list.json",
                                         {.sizes = reduced_sizes()});
  const diffusion_planner::FrameBatch batch = frames.allocate(frames.size());
  for (int64_t i = 0; i < frames.size(); ++i) frames.read(i, batch, i);
  return preset == "UP" ? upstream_frames(batch) : batch;
}

/// Random numbers in frames of any model, on any device.
inline diffusion_planner::FrameBatch random_frames(const models::DiffusionPlannerOptions& model,
                                                   int64_t count, c10::Device device) {
  diffusion_planner::FrameBatch batch =
      random_samples(diffusion_planner::layout_of(model), diffusion_planner::sizes_of(model), count);
  diffusion_planner::FrameBatch::fields(batch, [&](std::string_view, at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(device);
  });
  return batch;
}

}  // namespace dtk::test
