// Devices, streams, events, random generators and pinned memory of the simulated device.
#pragma once
#include <c10/core/Stream.h>

namespace dtk::planner {

/// Registers them for the process. Before anything asks LibTorch whether there is a CUDA device: the answer
/// is kept.
void register_simulated_runtime();

/// On which work of the calling thread goes; 0 is the default stream.
c10::StreamId current_stream();

}  // namespace dtk::planner
