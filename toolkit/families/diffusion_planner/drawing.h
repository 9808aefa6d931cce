// The trajectories that a trained Diffusion-Planner draws, and where they go.
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/io/stored_tensor.h"
#include "toolkit/train/drawing.h"

namespace dtk::diffusion_planner {

SampleUsage frames_usage();

/// --frames, opened as the model of `source` reads them. Throws DataError as FrameSource.
std::shared_ptr<const FrameSource> open_sample_frames(const SampleSource& source,
                                                      const SampleArguments& arguments);
RunData drawn_from(const std::shared_ptr<const FrameSource>& frames);

/// Of frames.json: a JSON list of the frames' absolute paths, which --frames reads again. Throws DataError
/// for a path that is not UTF-8.
std::string sample_frames_list(const FrameSource& frames);

/// Throws ConfigError if --out cannot be the folder of trajectories, or holds some already.
void check_out_for_frames(FileSystem& files, const std::string& out);

/// TrainableDiffusionPlanner::trajectories() of all frames, in --steps or the run's steps. Throws as
/// draw_samples() and Frames::read().
std::vector<NamedTensor> draw_trajectories(const SampleSource& source, const SampleArguments& arguments,
                                           const FrameSource& frames, c10::Device device,
                                           const KeepGoing& keep_going = {});

/// Creates the folder --out if need be, and writes `trajectories` to its trajectories.safetensors and `list`
/// to its frames.json. Throws FileError.
void write_trajectories(FileSystem& files, const std::string& out,
                        const std::vector<NamedTensor>& trajectories, const std::string& list);

/// All of it. Throws ConfigError and DataError for what cannot be drawn or written.
std::unique_ptr<Drawing> draw_frames(FileSystem& files, const SampleSource& source,
                                     const SampleArguments& arguments);

}  // namespace dtk::diffusion_planner
