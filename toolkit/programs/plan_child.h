// The plan of a run, made by dit-plan before the run begins.
#pragma once
#include <c10/core/Device.h>

#include "toolkit/config/config_io.h"
#include "toolkit/run/run.h"

namespace dtk {

/// Runs the dit-plan that lies beside this program, in a process of its own: simulated and real CUDA exclude
/// each other in one. Takes some tenths of a second; on the CPU with memory.budget, where the scratch of the
/// run's kernels is measured too, some 15 s more at most. A signal that asks this program to stop ends it.
/// Throws nothing; says why where there is no plan.
StartPlan plan_in_child(const LoadedConfig& loaded, c10::Device device);

}  // namespace dtk
