#include <dtk/toolkit/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dtk {

double run_progress(const TrainOptions& train, int64_t step, double elapsed_seconds) {
  double progress = 0.0;
  if (train.steps) progress = static_cast<double>(step) / static_cast<double>(*train.steps);
  if (train.seconds) progress = std::max(progress, elapsed_seconds / *train.seconds);
  return std::min(progress, 1.0);
}

double learning_rate(const OptimizerOptions& optimizer, const ScheduleOptions& schedule, int64_t step,
                     double progress) {
  double factor = 1.0;
  if (schedule.kind == "cosine") {
    factor = schedule.final + (1.0 - schedule.final) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  }
  if (step < schedule.warmup) {
    factor *= static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  }
  return optimizer.lr * factor;
}

}  // namespace dtk
