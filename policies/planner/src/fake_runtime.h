// Devices, streams, events, random generators and pinned memory of the simulated device.
#pragma once

namespace dtk::planner {

/// Registers them for the process. Before anything asks LibTorch whether there is a CUDA device: the answer
/// is kept.
void register_fake_runtime();

}  // namespace dtk::planner
