// The data that a Diffusion-Planner is trained on.
#pragma once
#include "toolkit/config/config_io.h"
#include "toolkit/data/run_data.h"
#include "toolkit/families/diffusion_planner/frames.h"

namespace dtk::diffusion_planner {

/// How the driving planner of `config` reads its frames.
FrameOptions frame_options_of(const RunConfig& config);

/// data.frames and data.held_out. Throws ConfigError and DataError.
RunData open_frames(const LoadedConfig& loaded);

/// Frames of the model's shapes, to which nothing is read: their values are zeros or anything. How many are
/// held out nobody knows: a batch shows what all of them take, and as many as are to be drawn what their
/// trajectories do.
RunData planned_frames(const RunConfig& config, int64_t samples, bool zeros);

}  // namespace dtk::diffusion_planner
