// Measuring what a plan can not know.
#pragma once
#include <c10/core/Device.h>
#include <dtk/planner/simulate.h>

#include <optional>

#include "toolkit/plan/plan.h"

namespace dtk {

/// `measured` must live as long as the result is used.
planner::SimulationOptions with_calibration(planner::SimulationOptions options, const Calibration& measured);

}  // namespace dtk
