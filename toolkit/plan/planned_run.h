// A configured run as the planner runs it: the whole job, from building the model to its last checkpoint,
// with no data, no files and no clock.
#pragma once
#include <c10/core/Device.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/collectives.h>
#include <dtk/policies/report.h>

#include <functional>
#include <vector>

#include "toolkit/config/config_io.h"

namespace dtk {

struct PlannedRun {
  planner::SimulationResult memory;
  std::vector<policies::PolicyReport> policies;  // what they said at the end of the run
  policies::TrafficByCollective sent = {};       // of several ranks: by the one that is planned, in a step
  int64_t rank_with_most = 0;                    // of several, that updates the most elements
};

/// Simulates run_training() of `loaded` with as few steps as show everything a long run does: the first step,
/// steady ones, the shorter last batch of an epoch, validation, logging, saving and sampling. Steady steps
/// are run for two periods of the policies; with `fold` for one, if the books after it, and at the job's end,
/// are those after the first step, and of a period of more than 100 steps for four, if those before a policy
/// acts end with equal books, which is not asked where an epoch ends with a shorter batch ("steady steps" of
/// SimulationResult::folded: of two periods, those left out). Whether
/// an epoch ends with a shorter batch is known from data.samples; without that key it is taken to. `at_end`
/// is called at the instant at which the plan ends. `rank`: of loaded.ranks, the one that is planned. Throws
/// as run_training() and planner::simulate().
PlannedRun plan_run(const LoadedConfig& loaded, c10::Device device,
                    const planner::SimulationOptions& options = {},
                    const std::function<void()>& at_end = nullptr, int64_t rank = 0);

/// The job that plan_run() simulates where it leaves no steady step of two periods out.
struct PlannedJob {
  LoadedConfig loaded = {};
  int64_t samples = 0;  // of its data set
};
PlannedJob planned_job(const LoadedConfig& loaded, c10::Device device);

}  // namespace dtk
