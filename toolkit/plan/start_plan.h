// The plan of a run that is about to begin. It is made in a process of its own, by dit-plan: dit-train asks
// with data and is answered with data, which read_start_plan() reads.
#pragma once
#include <string>

#include "toolkit/config/config_io.h"

namespace dtk {

/// The argument before the file that holds the request.
inline constexpr char kStartPlanArgument[] = "--start-plan";

struct StartPlanRequest {
  LoadedConfig loaded;    // with train.threads, and memory.budget in bytes
  std::string device;     // cpu or cuda:0
  bool measured = false;  // with the scratch of the CPU's kernels, which is measured if the job fits
};
std::string start_plan_request_json(const StartPlanRequest& request);

/// The plan as dit-plan --json prints it; or {"refusal"} where the configuration cannot run, which begins
/// with the location where the user wrote the key; or {"problem", "machine_too_small": true}. memory.budget
/// is left to who asks. Throws as make_plan() for anything else.
std::string start_plan_json(const std::string& request);

}  // namespace dtk
