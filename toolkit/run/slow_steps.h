// Steps that take many times as long as others do, and where they waited: a stalled disk, a source of data
// that fell behind, a device that somebody else uses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk {

/// Seconds of one step, and how many of them it waited for each.
struct StepTime {
  double seconds = 0;
  double data = 0;    // for the loader
  double device = 0;  // for the scalars that are read
  double disk = 0;    // for the line of the log

  StepTime& operator+=(const StepTime& other);
  StepTime over(int64_t steps) const;
};

class SlowSteps {
 public:
  /// A step is slow if it takes more than `factor` times the median of those before, the last 101 at most;
  /// the first 20 are none.
  explicit SlowSteps(double factor) : factor_(factor) {}

  /// Adds one; the median before it if it is slow.
  std::optional<double> add(const StepTime& step);

 private:
  const double factor_;
  std::vector<double> seconds_;  // a ring
  size_t next_ = 0;
};

/// "8.10 s of it waiting for data", or that it waited for nothing that is known.
std::string where_it_waited(const StepTime& step);

}  // namespace dtk
