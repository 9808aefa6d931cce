// Looks after a run while it trains: steps that take many times as long as others do (slow_steps.h), a
// process that grows beside what it counts (memory_growth.h), and a timeline of some steps where it is asked
// for (trace.h). The first two are logged and told of; neither ends a run.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

#include "toolkit/config/config.h"
#include "toolkit/run/memory_growth.h"
#include "toolkit/run/record.h"
#include "toolkit/run/run.h"
#include "toolkit/run/slow_steps.h"
#include "toolkit/run/trace.h"
#include "toolkit/train/trainer.h"

namespace dtk {

/// For the thread that trains. All that is given by reference must outlive it.
class Watch {
 public:
  Watch(const RunConfig& config, c10::Device device, const RunWorld& world, const Trainer& trainer);

  void begin_step();
  /// Neither timed nor counted: it was taken back.
  void forget_step() { in_step_ = false; }
  /// `is_logged`: its scalars were read. A device works on while the host goes ahead, so there only the steps
  /// between two readings can be timed, together.
  void end_step(bool is_logged, RunRecord& record);
  /// At the end of the training: tells of what was asked for and is not there.
  void end() const;

  /// While it lives, the running step waits for what `part` is of; outside of a step nothing is noted.
  class Waits {
   public:
    [[nodiscard]] Waits(Watch& watch, double StepTime::*part)
        : watch_(watch), part_(part), begun_(watch.seconds()) {}
    ~Waits() {
      if (watch_.in_step_) watch_.time_.*part_ += watch_.seconds() - begun_;
    }
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;

   private:
    Watch& watch_;
    double StepTime::*const part_;
    const double begun_;
  };

  /// Bytes of the process, and of them those that the ledger counts; nothing where they are not known.
  struct Memory {
    std::optional<int64_t> process, counted;
  };
  /// Where a line is logged.
  Memory look_at_memory(RunRecord& record);

 private:
  double seconds() const { return world_.watch ? world_.watch() : 0; }
  void look_at_time(RunRecord& record);

  const RunConfig& config_;
  const c10::Device device_;
  const RunWorld& world_;
  const Trainer& trainer_;
  SlowSteps slow_steps_;
  MemoryGrowth memory_growth_;
  std::optional<StepTrace> trace_;
  StepTime time_;      // of the steps that were not looked at yet
  int64_t steps_ = 0;  // their number
  bool in_step_ = false;
  double begun_ = 0, waited_ = 0;  // of the running step
};

}  // namespace dtk
