// What else is planned to fit, where a run does not: found by plans of the same run with another value.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "toolkit/config/config_io.h"
#include "toolkit/report/plan_summary.h"
#include "toolkit/run/out_of_memory.h"
#include "toolkit/run/run.h"

namespace dtk {

/// How a run was judged, which others are judged by. All that is given by reference must outlive it.
struct JudgedRun {
  const LoadedConfig& loaded;
  const StartPlan& plan;
  c10::Device device;
  bool with_host;  // host memory counts too
  int64_t limit;   // bytes
};

/// Each plans as `world` does, and finds nothing once all have taken some 20 s by its watch: who is refused
/// does not wait for minutes.
class OtherFits {
 public:
  OtherFits(const JudgedRun& judged, const RunWorld& world)
      : judged_(judged), world_(world), begin_(world.watch ? world.watch() : 0) {}

  /// Whether ranks that divide the weights, too, fit, where that is another choice.
  bool weights_divided() const;
  /// The largest data.batch of as many micro-batches; where none fits, of one a rank.
  FewerSamples fewer_samples() const;
  /// The least train.accumulate for the same data.batch. `fewer`: what fewer_samples() found.
  std::optional<int64_t> accumulate(const FewerSamples& fewer) const;

 private:
  FewerSamples largest_with(int64_t accumulate) const;
  std::optional<int64_t> bytes_with(const std::function<void(RunConfig&)>& edit) const;

  const JudgedRun judged_;
  const RunWorld& world_;
  const double begin_;  // seconds
};

}  // namespace dtk
