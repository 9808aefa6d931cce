// Devices, streams, events, random generators and pinned memory of the simulated device, and the operators
// that are CUDA's own.
#pragma once
#include <c10/core/Stream.h>

#include <vector>

namespace dtk::planner {

/// Registers them for the process. Before anything asks LibTorch whether there is a CUDA device: the answer
/// is kept.
void register_simulated_runtime();

/// On which work of the calling thread goes; 0 is the default stream.
c10::StreamId current_stream();

/// Operators, "aten::silu_backward", that have a kernel of their own on CUDA and, where libtorch_cuda is not
/// loaded, would silently be taken apart into others, whose storages are other ones. Of all versions of
/// LibTorch that plans know: one may lack some. Made by tests/planner/device/cuda_operators.py, whose test
/// fails when it is out of date.
const std::vector<const char*>& composite_cuda_operators();

}  // namespace dtk::planner
