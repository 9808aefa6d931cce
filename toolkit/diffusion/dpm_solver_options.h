// Steps and times of DPM-Solver++.
#pragma once
#include <cstdint>

namespace dtk {

struct DpmSolverOptions {
  int64_t steps = 10;
  double first = 1.0;  // time that x is taken to be at
  double last = 1e-3;  // time of the result, before it is denoised

  friend bool operator==(const DpmSolverOptions&, const DpmSolverOptions&) = default;
};

}  // namespace dtk
