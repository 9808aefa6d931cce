// dit-sample for the driving planner: the trajectories of frames, and where they go.
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "toolkit/commands/arguments.h"
#include "toolkit/commands/sample.h"
#include "toolkit/core/named_tensor.h"
#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/io/file_system.h"

namespace dtk {

/// Throws ConfigError for --frames with a model of images or latents, and for --classes with the driving
/// planner.
void check_classes_or_frames(const SampleSource& source, const SampleArguments& arguments);

/// --frames, opened as the model of `source` reads them. Throws DataError as FrameSource.
std::shared_ptr<const diffusion_planner::FrameSource> open_sample_frames(const SampleSource& source,
                                                      const SampleArguments& arguments);
/// What dit-sample says of them: the description, that they were made up, what was left out.
std::vector<std::string> sample_frames_lines(const std::shared_ptr<const diffusion_planner::FrameSource>& frames);

/// Of frames.json: a JSON list of the frames' absolute paths, which --frames reads again. Throws DataError
/// for a path that is not UTF-8.
std::string sample_frames_list(const diffusion_planner::FrameSource& frames);

/// Throws ConfigError if --out cannot be the folder of trajectories, or holds some already.
void check_out_for_frames(FileSystem& files, const std::string& out);

/// TrainableDiffusionPlanner::trajectories() of all frames, in --steps or the run's steps. Throws as
/// draw_samples() and Frames::read().
std::vector<NamedTensor> draw_trajectories(const SampleSource& source, const SampleArguments& arguments,
                                           const diffusion_planner::FrameSource& frames, c10::Device device,
                                           const KeepGoing& keep_going = {});

/// Creates the folder --out if need be, and writes `trajectories` to its trajectories.safetensors and `list`
/// to its frames.json. Throws FileError.
void write_trajectories(FileSystem& files, const std::string& out,
                        const std::vector<NamedTensor>& trajectories, const std::string& list);

}  // namespace dtk
