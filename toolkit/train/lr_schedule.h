// The learning rate as a pure function of where the run is.
#pragma once
#include <cstdint>

#include "toolkit/config/config.h"

namespace dtk {

/// Where a run is.
struct RunPosition {
  int64_t step = 0;               // optimizer steps done
  int64_t samples = 0;            // trained on
  int64_t samples_per_epoch = 1;  // Loader::samples_per_epoch()
  double seconds = 0;             // of training
  int64_t resumed = 0;  // epoch number in which the process went on; 0: in a run that was not resumed
};

/// How much of the run is over, in [0, 1]: the largest share of train.steps, train.epochs and train.seconds,
/// of those that are set.
double run_progress(const TrainOptions& train, const RunPosition& at);

/// Rate of the optimizer step that begins at `at`. With "cosine" and "constant" it warms up linearly over
/// schedule.warmup steps, and is optimizer.lr times the cosine from 1 to schedule.final (or 1) at
/// run_progress(). With "epochs" it is that of the epoch which the step's first sample is of; at the end of
/// the run, of the last one: the warm-up is linear from 0.1 in epoch 0 to 1 in epoch warmup - 1; where the
/// rate is lowered, the warm-up does not count. A run that was resumed has the rates of one that was not, but
/// with overshooting_resume.
double learning_rate(const RunConfig& config, const RunPosition& at);

}  // namespace dtk
