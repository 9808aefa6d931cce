#include "toolkit/checkpoint/retention.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dtk {

std::vector<int64_t> steps_to_remove(std::vector<StepState> checkpoints, int64_t keep) {
  if (keep < 1) {
    throw std::invalid_argument("at least 1 checkpoint must be kept, not " + std::to_string(keep));
  }
  std::sort(checkpoints.begin(), checkpoints.end(),
            [](const StepState& a, const StepState& b) { return a.step > b.step; });
  std::vector<int64_t> removed;
  int64_t kept = 0;
  for (const StepState& checkpoint : checkpoints) {
    if (kept == keep) {
      removed.push_back(checkpoint.step);
    } else if (checkpoint.complete) {
      ++kept;
    }
  }
  std::reverse(removed.begin(), removed.end());
  return removed;
}

}  // namespace dtk
