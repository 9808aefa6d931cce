#include "toolkit/run/other_fits.h"

#include "toolkit/config/rules.h"
#include "toolkit/core/largest_fit.h"
#include "toolkit/report/memory_need.h"
#include "toolkit/run/start.h"

namespace dtk {

std::optional<int64_t> OtherFits::bytes_with(const std::function<void(RunConfig&)>& edit) const {
  if (!can_plan() || (world_.stop_requested && world_.stop_requested())) return std::nullopt;
  LoadedConfig other = judged_.loaded;
  edit(other.config);
  if (judged_.plan.precision) other.config.policies.precision.cpu = *judged_.plan.precision;
  const StartPlan planned = plan_run(world_, std::move(other), judged_.device);
  if (!planned.memory) return std::nullopt;
  return planned.need(judged_.with_host).bytes();
}

bool OtherFits::can_plan() const {
  return world_.plan != nullptr && !placement_is_open(judged_.loaded.config);
}

bool OtherFits::weights_divided() const {
  const policies::ShardOptions& shard = judged_.loaded.config.policies.shard;
  if (judged_.loaded.ranks == 1 || shard.enabled == policies::Enabled::off) return false;
  if (shard.level != policies::ShardLevel::optimizer) return false;
  const auto bytes =
      bytes_with([](RunConfig& config) { config.policies.shard.level = policies::ShardLevel::parameters; });
  return bytes && fits_in(*bytes, judged_.limit);
}

std::optional<StepSize> OtherFits::largest_with(int64_t accumulate) const {
  const RunConfig& config = judged_.loaded.config;
  // A part of a micro-batch has at least one sample.
  const int64_t unit = accumulate * config.memory.split;
  const int64_t most = (config.data.batch - 1) / unit;
  if (most < 1) return std::nullopt;
  bool all_planned = true;
  const auto bytes_of = [&](int64_t units) {
    if (!all_planned) return INT64_MAX;
    const auto bytes = bytes_with([&](RunConfig& other) {
      other.data.batch = units * unit;
      other.train.accumulate = accumulate;
    });
    all_planned = bytes.has_value();
    return bytes.value_or(INT64_MAX);
  };
  const LargestFit found = largest_within(most, judged_.limit, bytes_of);
  if (!all_planned || found.fitting == 0) return std::nullopt;
  return StepSize{found.fitting * unit, accumulate};
}

std::optional<StepSize> OtherFits::fewer_samples() const {
  const int64_t accumulate = judged_.loaded.config.train.accumulate, ranks = judged_.loaded.ranks;
  const std::optional<StepSize> found = largest_with(accumulate);
  return found || accumulate == ranks ? found : largest_with(ranks);
}

std::optional<int64_t> OtherFits::accumulate(const StepSize& fewer) const {
  const RunConfig& config = judged_.loaded.config;
  if (fewer.accumulate < config.train.accumulate) return std::nullopt;  // fewer of them take less
  const int64_t micro_batch = fewer.batch / fewer.accumulate;           // fits, in a step of fewer samples
  const int64_t first = (config.data.batch + micro_batch - 1) / micro_batch;
  for (int64_t more = first; more <= config.data.batch / config.memory.split; ++more) {
    if (config.data.batch % more != 0 || more % judged_.loaded.ranks != 0) continue;
    const auto bytes = bytes_with([&](RunConfig& other) { other.train.accumulate = more; });
    if (!bytes) return std::nullopt;
    if (fits_in(*bytes, judged_.limit)) return more;
  }
  return std::nullopt;
}

}  // namespace dtk
