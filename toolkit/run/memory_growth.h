// Memory that a process takes beside what it counts: code, libraries, scratch of kernels, the allocator's
// own. It is constant once a run is under way; where it is not, something leaks.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>

namespace dtk {

class MemoryGrowth {
 public:
  struct Growth {
    int64_t bytes = 0, steps = 0;  // within so many steps
  };
  /// One reading after `step` steps: bytes of the process beside the counted ones. Gives the growth where the
  /// lowest readings of four times 250 steps, or of more where readings are rarer, each lie above those
  /// before, by 1 MiB or more together; then looks at what comes after. The first 1,000 steps of a process
  /// are not looked at.
  std::optional<Growth> add(int64_t step, int64_t bytes);

 private:
  struct Window {
    int64_t number, lowest;
  };
  std::optional<int64_t> first_step_;
  std::deque<Window> windows_;
};

}  // namespace dtk
