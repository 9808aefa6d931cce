// The trajectories that a trained Diffusion-Planner draws, and where they go.
#pragma once
#include <memory>

#include "toolkit/train/drawing.h"

namespace dtk::diffusion_planner {

SampleUsage frames_usage();

/// TrainableDiffusionPlanner::trajectories() of all --frames, in --steps or the run's steps. --out becomes a
/// folder, if it is none, with trajectories.safetensors and frames.json, a JSON list of the frames' absolute
/// paths, which --frames reads again. Throws ConfigError if --out cannot be such a folder or holds
/// trajectories already, DataError as FrameSource and for a path that is not UTF-8.
std::unique_ptr<Drawing> draw_frames(FileSystem& files, const SampleSource& source,
                                     const SampleArguments& arguments);

}  // namespace dtk::diffusion_planner
