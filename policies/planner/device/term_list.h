// The terms of the simulated CUDA device, of what its memory and its kernels' calls were.
#pragma once
#include <dtk/planner/device_terms.h>

#include <vector>

#include "cost/kernel_needs.h"

namespace dtk::planner {

/// Peaks are those of SimulatedMemory and PinnedMemory, since they were reset.
std::vector<DeviceTerm> term_list(const DeviceTermOptions& options, const KernelCalls& calls);

}  // namespace dtk::planner
