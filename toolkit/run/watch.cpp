#include "toolkit/run/watch.h"

#include <dtk/policies/memory_ledger.h>

#include <utility>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/report/line_chart.h"

namespace dtk {

Watch::Watch(const RunConfig& config, c10::Device device, const RunWorld& world, const Trainer& trainer)
    : config_(config),
      device_(device),
      world_(world),
      trainer_(trainer),
      slow_steps_(config.train.slow_step) {
  if (!world.trace.empty()) trace_.emplace(world.trace, device);
}

void Watch::begin_step() {
  begun_ = seconds();
  waited_ = trainer_.exposed_wait_seconds();
  in_step_ = true;
  if (trace_) trace_->begin_step();
}

void Watch::end_step(bool is_logged, RunRecord& record) {
  in_step_ = false;
  time_.seconds += seconds() - begun_;
  if (trace_) {
    if (const std::string written = trace_->end_step(); !written.empty()) world_.observer.message(written);
  }
  time_.data += trainer_.exposed_wait_seconds() - waited_;
  ++steps_;
  if (world_.watch && (device_.is_cpu() || is_logged)) look_at_time(record);
}

void Watch::look_at_time(RunRecord& record) {
  const int64_t count = std::exchange(steps_, 0);
  const StepTime time = std::exchange(time_, {}).over(count);
  const auto median = slow_steps_.add(time);
  if (!median) return;
  const int64_t last = trainer_.steps();
  record.slow_step(last, count, time, *median);
  world_.observer.message(fmt::format(
      "{} took {:.3g} s{}, {:.0f} times the median of {:.3g} s: {}",
      count == 1 ? fmt::format("step {}", last) : fmt::format("steps {} to {}", last - count + 1, last),
      time.seconds, count == 1 ? "" : " each", time.seconds / *median, *median, where_it_waited(time)));
}

Watch::Memory Watch::look_at_memory(RunRecord& record) {
  Memory memory;
  if (!world_.resident) return memory;
  memory.process = world_.resident();
  if (!config_.memory.ledger || !memory.process) return memory;
  memory.counted = policies::cpu_accounts().live_bytes() + policies::host_accounts().live_bytes();
  const auto growth = memory_growth_.add(trainer_.steps(), *memory.process - *memory.counted);
  if (!growth) return memory;
  record.memory_grows(trainer_.steps(), *growth);
  world_.observer.message(fmt::format(
      "step {}: the process holds {} more than {} steps before, beside what is counted; if it goes "
      "on so, the memory will not last (report.html has the curve)",
      trainer_.steps(), readable_bytes(growth->bytes), with_separators(growth->steps)));
  return memory;
}

void Watch::end() const {
  if (!trace_) return;
  if (const std::string why = trace_->why_none(); !why.empty()) world_.observer.message(why);
}

}  // namespace dtk
