// The steps of dit-plan.
#pragma once
#include <functional>
#include <string>

#include "toolkit/commands/arguments.h"
#include "toolkit/io/file_system.h"
#include "toolkit/plan/plan.h"

namespace dtk {

/// dit-plan: reads the configuration, plans what is asked for, and hands the report to `print`, before any
/// error about it. Of a job with keep = "auto" the choice is planned (report/placement.h). Throws
/// ConfigError, planner::PlanError, and Error with ExitCode::memory for a job that exceeds memory.budget,
/// where not one of a table fits it, or for --max-batch that fits none.
void run_plan(const PlanArguments& arguments, FileSystem& files,
              const std::function<void(const std::string&)>& print);

}  // namespace dtk
