#include "toolkit/run/memory_growth.h"

#include <algorithm>

namespace dtk {

std::optional<MemoryGrowth::Growth> MemoryGrowth::add(int64_t step, int64_t bytes) {
  constexpr int64_t window_steps = 250, unsettled_steps = 1000, min_growth = int64_t{1} << 20;
  constexpr size_t rising_windows = 5;  // four rises, over 1,000 steps
  if (!first_step_) first_step_ = step;
  if (step - *first_step_ < unsettled_steps) return std::nullopt;
  const int64_t number = step / window_steps;
  if (windows_.empty() || windows_.back().number != number) {
    windows_.push_back({number, bytes});
  } else {
    windows_.back().lowest = std::min(windows_.back().lowest, bytes);
    return std::nullopt;
  }
  // The last one has only begun.
  if (windows_.size() <= rising_windows) return std::nullopt;
  const auto rises = [](const Window& a, const Window& b) { return a.lowest >= b.lowest; };
  const bool all_rise = std::adjacent_find(windows_.begin(), windows_.end() - 1, rises) == windows_.end() - 1;
  const Window &first = windows_.front(), &last = windows_[rising_windows - 1];
  const Growth growth{last.lowest - first.lowest, (last.number - first.number) * window_steps};
  windows_.pop_front();
  if (!all_rise || growth.bytes < min_growth) return std::nullopt;
  windows_.clear();
  return growth;
}

}  // namespace dtk
