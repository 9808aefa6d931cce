#include <dtk/toolkit/planner_schedule.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dtk {
namespace {

double warmed_up(const PlannerScheduleOptions& schedule, int64_t epoch) {
  const int64_t steps = schedule.warmup - 1;
  if (epoch >= steps) return 1.0;
  return 0.1 + 0.9 * static_cast<double>(epoch) / static_cast<double>(steps);
}

}  // namespace

double planner_learning_rate(const PlannerScheduleOptions& schedule, double lr, int64_t epoch,
                             int64_t resumed) {
  if (epoch < std::max<int64_t>(resumed, 0) || epoch >= schedule.epochs) {
    throw std::invalid_argument("planner_learning_rate: epoch " + std::to_string(epoch) + " of a run of " +
                                std::to_string(schedule.epochs) + " resumed before epoch " +
                                std::to_string(resumed));
  }
  if (schedule.lowered && epoch >= schedule.epochs - 5) return 0.01 * lr;
  if (schedule.lowered && epoch >= schedule.epochs - 10) return 0.1 * lr;
  if (schedule.overshooting_resume && resumed > 0) {
    return lr * warmed_up(schedule, epoch - 1) / warmed_up(schedule, resumed - 1);
  }
  return lr * warmed_up(schedule, epoch);
}

}  // namespace dtk
