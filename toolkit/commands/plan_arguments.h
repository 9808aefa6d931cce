// The arguments of dit-plan. As arguments.h: what is wrong with them is a ConfigError.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/plan/calibration.h"

namespace dtk {

struct PlanArguments {
  std::string config;                          // file
  std::vector<std::string> set;                // "data.batch=16", in order
  PlannedDevice device = PlannedDevice::cuda;  // neither is needed
  std::string max_batch;                       // "": not asked for; else a size, as it was written
  std::string calibrate;             // "": not asked for; else the file to write. `config` is "" with cuda
  std::string calibration;           // "", a file that was written so, or "here"
  std::vector<std::string> without;  // names of device terms to leave out
  bool table = false;                // at most one of table, explain and max_batch is given
  bool explain = false;
  bool json = false;
  bool fold = true;      // leave out passes of a loop that repeat
  bool help = false;     // nothing else was checked
  bool version = false;  // likewise
};

/// --calibration here: the scratch of the job's kernels is measured before it is planned.
inline bool measures_here(const PlanArguments& arguments) {
  return arguments.calibration == "here";
}

/// `argv[0]` is the program's name, as in main.
PlanArguments parse_plan_arguments(int argc, const char* const* argv);
/// At most 24 lines of at most 80 columns; the last is an example.
std::string plan_help();

}  // namespace dtk
