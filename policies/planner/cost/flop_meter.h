// Adds up the FLOPs of a simulation, by pass and by optimizer step.
#pragma once
#include <dtk/planner/flops.h>
#include <dtk/policies/internal/scoped.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cost/operator_flops.h"

namespace dtk::planner {

/// Of a step.
struct CountedFlops {
  Flops flops;
  std::map<std::string, int64_t>
      recomputed;  // Flops::recomputed by the module that is recomputed; "" outside of all
};

/// Counts every operator call of the process while alive; one at a time. Thread-safe.
class FlopMeter : policies::NotCopied {
 public:
  [[nodiscard]] FlopMeter();
  ~FlopMeter();

  /// Ends the current step.
  void step_done();
  /// Of the current step so far.
  CountedFlops current() const;
  /// Adds what came since it was `before`, so many times: of passes that are left out as they repeat.
  void repeat_since(const CountedFlops& before, int64_t times);
  /// Of each step that ended.
  std::vector<CountedFlops> steps() const;

  /// For the calling thread's pass, in the meter that is alive.
  static void count(const OperatorFlops& flops);

 private:
  void add(const OperatorFlops& flops);
  mutable std::mutex mutex_;
  CountedFlops current_;
  std::vector<CountedFlops> steps_;
};

/// While alive, what this thread's operators call in turn is not counted again.
class CountedOperatorScope {
 public:
  [[nodiscard]] CountedOperatorScope(FlopRule rule, c10::ArrayRef<c10::IValue> arguments);

 private:
  const bool outer_;
  const policies::ScopedValue<bool> within_;
};

}  // namespace dtk::planner
