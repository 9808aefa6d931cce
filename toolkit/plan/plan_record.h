// A plan as text, from one process to another.
#pragma once
#include <string>
#include <string_view>

#include "toolkit/plan/plan.h"

namespace dtk {

/// All of a plan but its configuration, which the reader has, and the calls a calibration would make.
std::string plan_record(const Plan& plan);

/// What plan_record() wrote in a process of this program; throws std::exception for another text.
Plan read_plan_record(std::string_view text, LoadedConfig loaded);

}  // namespace dtk
