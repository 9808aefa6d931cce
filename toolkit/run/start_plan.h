// The plan of a run, by whoever plans in its world.
#pragma once
#include <c10/core/Device.h>

#include "toolkit/config/config_io.h"
#include "toolkit/report/plan_summary.h"
#include "toolkit/run/run.h"

namespace dtk {

/// Of a run that goes on: that of a new run.
StartPlan start_plan(const RunWorld& world, LoadedConfig loaded, c10::Device device);

}  // namespace dtk
