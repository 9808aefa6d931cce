#include "toolkit/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dtk {
namespace {

double factor_by_steps(const ScheduleOptions& schedule, int64_t step, double progress) {
  double factor = 1.0;
  if (schedule.kind == ScheduleKind::cosine) {
    factor = schedule.final + (1.0 - schedule.final) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  }
  if (step < schedule.warmup) {
    factor *= static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  }
  return factor;
}

double warmed_up(const EpochScheduleOptions& schedule, int64_t epoch) {
  const int64_t steps = schedule.warmup - 1;
  if (epoch >= steps) return 1.0;
  return 0.1 + 0.9 * static_cast<double>(epoch) / static_cast<double>(steps);
}

double rate_by_epochs(const EpochScheduleOptions& schedule, double lr, int64_t epochs, int64_t epoch,
                      int64_t resumed) {
  if (schedule.lowered && epoch >= epochs - 5) return 0.01 * lr;
  if (schedule.lowered && epoch >= epochs - 10) return 0.1 * lr;
  if (schedule.overshooting_resume && resumed > 0) {
    return lr * warmed_up(schedule, epoch - 1) / warmed_up(schedule, resumed - 1);
  }
  return lr * warmed_up(schedule, epoch);
}

}  // namespace

double run_progress(const TrainOptions& train, const RunPosition& at) {
  double progress = 0.0;
  const auto reach = [&](double done, double all) { progress = std::max(progress, done / all); };
  if (train.steps) reach(static_cast<double>(at.step), static_cast<double>(*train.steps));
  if (train.epochs) {
    reach(static_cast<double>(at.samples),
          static_cast<double>(*train.epochs) * static_cast<double>(at.samples_per_epoch));
  }
  if (train.seconds) reach(at.seconds, *train.seconds);
  return std::min(progress, 1.0);
}

double learning_rate(const RunConfig& config, const RunPosition& at) {
  const double lr = config.optimizer.lr;
  if (config.schedule.kind != ScheduleKind::epochs)
    return lr * factor_by_steps(config.schedule, at.step, run_progress(config.train, at));
  const int64_t epochs = config.train.epochs.value();
  const int64_t epoch = std::min(at.samples / at.samples_per_epoch, epochs - 1);
  return rate_by_epochs(config.epoch_schedule, lr, epochs, epoch, std::min(at.resumed, epoch));
}

}  // namespace dtk
