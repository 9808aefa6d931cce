// Which checkpoints of a folder are kept.
#pragma once
#include <cstdint>
#include <vector>

namespace dtk {

struct StepState {
  int64_t step;
  bool complete;  // it can be loaded
};

/// Steps of the checkpoints to remove, ascending: all that are older than the newest `keep` complete ones.
/// Incomplete ones never count as kept, so a series of failed saves cannot push out the last good one.
/// `keep` must be at least 1, otherwise std::invalid_argument.
std::vector<int64_t> steps_to_remove(std::vector<StepState> checkpoints, int64_t keep);

}  // namespace dtk
