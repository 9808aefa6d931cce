#include "toolkit/run/slow_steps.h"

#include <algorithm>

#include "toolkit/core/format.h"

namespace dtk {
namespace {

constexpr size_t max_known = 101, min_known = 20;

}  // namespace

StepTime& StepTime::operator+=(const StepTime& other) {
  seconds += other.seconds;
  data += other.data;
  device += other.device;
  disk += other.disk;
  return *this;
}

StepTime StepTime::over(int64_t steps) const {
  const auto count = static_cast<double>(steps);
  return {seconds / count, data / count, device / count, disk / count};
}

std::optional<double> SlowSteps::add(const StepTime& step) {
  std::optional<double> exceeded;
  if (seconds_.size() >= min_known) {
    std::vector<double> sorted = seconds_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    if (step.seconds > factor_ * *middle) exceeded = *middle;
  }
  if (seconds_.size() < max_known) {
    seconds_.push_back(step.seconds);
  } else {
    seconds_[next_++ % max_known] = step.seconds;
  }
  return exceeded;
}

std::string where_it_waited(const StepTime& step) {
  const double most = std::max({step.data, step.device, step.disk});
  if (most < step.seconds / 2) return "most of it neither waiting for data nor for device or disk";
  const char* const what = most == step.data ? "data" : most == step.device ? "the device" : "the disk";
  return fmt::format("{:.3g} s of it waiting for {}", most, what);
}

}  // namespace dtk
