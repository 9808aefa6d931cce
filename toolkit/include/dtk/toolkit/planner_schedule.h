// The driving planner's learning rate: a pure function of the epoch.
#pragma once
#include <dtk/toolkit/planner_objective_options.h>

#include <cstdint>

namespace dtk {

/// Rate in epoch number `epoch` = 0 .. epochs - 1 of a run whose whole rate is `lr`. The warm-up is linear
/// from 0.1 in epoch 0 to 1 in epoch warmup - 1; where the rate is lowered, the warm-up does not count. A run
/// that was resumed before epoch number `resumed` > 0 has the rates of one that was not, but with
/// overshooting_resume. Throws std::invalid_argument for an epoch outside of the run, or before `resumed`.
double planner_learning_rate(const PlannerScheduleOptions& schedule, double lr, int64_t epoch,
                             int64_t resumed = 0);

}  // namespace dtk
