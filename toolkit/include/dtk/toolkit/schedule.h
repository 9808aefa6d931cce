// The learning rate as a pure function of where the run is.
#pragma once
#include <dtk/toolkit/config.h>

#include <cstdint>

namespace dtk {

/// How much of the run is over, in [0, 1]: the larger of step / train.steps and elapsed / train.seconds, of
/// those that are set.
double run_progress(const TrainOptions& train, int64_t step, double elapsed_seconds);

/// Rate of optimizer step number `step` = 0, 1, ... at `progress` in [0, 1]: linear warm-up to
/// optimizer.lr, times the cosine from 1 to schedule.final (or 1 for "constant").
double learning_rate(const OptimizerOptions& optimizer, const ScheduleOptions& schedule, int64_t step,
                     double progress);

}  // namespace dtk
