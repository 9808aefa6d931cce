// How far the plan of a job is from the job: both are run, and every storage of both is compared.
#pragma once
#include <dtk/planner/simulate.h>
#include <dtk/policies/internal/event_log.h>

#include <cstdint>
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/distributed/ranks.h"

namespace dtk {

/// predicted and measured differ in one figure of one phase.
struct PlanDifference {
  std::string phase;
  std::string what;  // "peak", "peak of temporaries", "born: temporaries aten::mm, 3 times for 2" ...
  int64_t predicted = 0, measured = 0;  // bytes
};

struct PlanAccuracy {
  std::vector<policies::LoggedPhase> planned, measured;
  std::vector<PlanDifference> differences;  // the first is of the peak, if that differs
  int64_t storages = 0;                     // born in the measured job, without scratch
  double plan_seconds = 0, run_seconds = 0;
};

/// Plans `loaded` under CPU rules and runs the same shortened job on the CPU. Compared per phase: the peak
/// without scratch, its categories and their items, and the number and bytes of storages born, by owner; for
/// what the job keeps apart as a host's memory likewise, as phases of their own.
/// Throws as run_training() and planner::simulate(). One at a time in a process; config.train.threads must be
/// set. `options`: of the plan, which is folded.
/// `ranks`: those that run it together, of which this one is planned; what it sends in a step is compared,
/// too.
PlanAccuracy plan_accuracy(const LoadedConfig& loaded, const planner::SimulationOptions& options = {},
                           Ranks* ranks = nullptr);

/// As above for two logs of one job, e.g. a folded and an unfolded plan. `births`: whether storages born are
/// compared beside the peaks.
std::vector<PlanDifference> differences(const std::vector<policies::LoggedPhase>& planned,
                                        const std::vector<policies::LoggedPhase>& measured, bool births);

/// A line for each.
std::string described(const std::vector<PlanDifference>& differences);

/// The storages of the plan of `loaded` under CPU rules, with and without folding.
std::vector<policies::LoggedPhase> planned_storages(const LoadedConfig& loaded, bool fold);

}  // namespace dtk
