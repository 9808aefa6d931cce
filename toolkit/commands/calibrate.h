// dit-plan --calibrate and --calibration.
#pragma once
#include <c10/core/Device.h>
#include <dtk/planner/simulate.h>

#include <functional>
#include <optional>
#include <string>

#include "toolkit/commands/plan_arguments.h"
#include "toolkit/config/config_io.h"
#include "toolkit/io/file_system.h"
#include "toolkit/plan/calibration.h"

namespace dtk {

/// Measures and writes arguments.calibrate.
void run_calibration(const PlanArguments& arguments, FileSystem& files,
                     const std::function<void(const std::string&)>& print);

/// What arguments.calibration holds, if it is asked for and was measured as `loaded` will run on `device`;
/// for "here" it is measured now. Nothing then for --max-batch, whose candidates are each measured.
std::optional<Calibration> calibration_for(const PlanArguments& arguments, FileSystem& files,
                                           const LoadedConfig& loaded, c10::Device device);

/// `measured` must live as long as the result is used.
planner::SimulationOptions options_of(const PlanArguments& arguments,
                                      const std::optional<Calibration>& measured);

}  // namespace dtk
