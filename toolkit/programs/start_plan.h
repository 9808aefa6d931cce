// The plan of a run, made by dit-plan before the run begins.
#pragma once
#include <c10/core/Device.h>
#include <dtk/toolkit/config_io.h>
#include <dtk/toolkit/memory_report.h>

#include <optional>
#include <string>

namespace dtk {

struct StartPlan {
  std::optional<MemoryReport> memory;
  std::string problem;  // why there is none
};

/// Runs the dit-plan that lies beside this program, in a process of its own: simulated and real CUDA exclude
/// each other in one. Takes some tenths of a second.
StartPlan plan_in_child(const LoadedConfig& loaded, c10::Device device);

}  // namespace dtk
