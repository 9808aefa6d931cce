// Any number of frames, from as many worlds as that takes.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "toolkit/families/diffusion_planner/batch.h"
#include "toolkit/families/diffusion_planner/layout.h"

namespace scenes {

/// Frames of one part are never of a world that the other part has seen.
enum class Part { training, held_out };

struct SceneSet {
  uint64_t seed = 1;
  Part part = Part::training;
  dtk::diffusion_planner::FrameLayout layout = dtk::diffusion_planner::FrameLayout::version_2;
  dtk::diffusion_planner::FrameSizes sizes;
};

/// For trying out and for short runs: a few neighbours, lanes and line strings, past and future of preset
/// "H".
dtk::diffusion_planner::FrameSizes reduced_sizes();
/// Of "reduced", "H", "M" and "UP"; nothing for any other name.
std::optional<SceneSet> scene_set(const std::string& preset);

/// Of world `number` of the part, counted from 0.
uint64_t world_seed(const SceneSet& set, uint64_t number);

/// Calls use(batch of one frame, its number) for `count` frames, always the same ones in the same order for
/// a set. Throws std::invalid_argument for sizes that cannot be drawn (wrong_sizes()).
void for_each_frame(const SceneSet& set, int64_t count,
                    const std::function<void(const dtk::diffusion_planner::FrameBatch&, int64_t)>& use);

}  // namespace scenes
