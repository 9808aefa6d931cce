#include "diffusion_planner/scene_set.h"

#include <dtk/models/diffusion_planner_options.h>
#include <dtk/policies/enum_text.h>

#include <algorithm>
#include <stdexcept>

#include "diffusion_planner/frames.h"
#include "toolkit/core/random_streams.h"

namespace scenes {

dtk::diffusion_planner::FrameSizes reduced_sizes() {
  dtk::diffusion_planner::FrameSizes sizes;
  sizes.neighbors = 16;
  sizes.predicted_neighbors = 8;
  sizes.static_objects = 3;
  sizes.lanes = 32;
  sizes.route_lanes = 8;
  sizes.polygons = 4;
  sizes.line_strings = 16;
  return sizes;
}

std::optional<SceneSet> scene_set(const std::string& preset) {
  SceneSet set;
  set.sizes = reduced_sizes();
  if (preset == "reduced") return set;
  const auto published = dtk::policies::parse_enum<dtk::models::DiffusionPlannerPreset>(preset);
  if (!published) return std::nullopt;
  dtk::models::DiffusionPlannerOptions model;
  model.preset = *published;
  set.sizes = dtk::diffusion_planner::sizes_of(model);
  set.layout = dtk::diffusion_planner::layout_of(model);
  return set;
}

uint64_t world_seed(const SceneSet& set, uint64_t number) {
  return dtk::draw64(dtk::draw64(dtk::mix64(set.seed), static_cast<uint64_t>(set.part)), number);
}

void for_each_frame(const SceneSet& set, int64_t count,
                    const std::function<void(const dtk::diffusion_planner::FrameBatch&, int64_t)>& use) {
  constexpr int64_t max_of_a_world = 6;
  if (const std::string wrong = wrong_sizes(set.sizes); !wrong.empty()) {
    throw std::invalid_argument("for_each_frame: " + wrong);
  }
  int64_t done = 0;
  for (uint64_t world = 0; done < count; ++world) {
    const uint64_t seed = world_seed(set, world);
    const Recording recording = record(seed, recorded_steps);
    const auto wanted = static_cast<size_t>(std::min(max_of_a_world, count - done));
    for (const Moment& moment : choose_moments(recording, set.sizes, wanted, seed)) {
      const dtk::diffusion_planner::FrameBatch frame = empty_frames(set.layout, set.sizes, 1);
      put_frame(recording, moment, frame, 0);
      use(frame, done++);
    }
  }
}

}  // namespace scenes
