#include "toolkit/run/other_fits.h"

#include <algorithm>
#include <vector>

#include "toolkit/config/rules.h"
#include "toolkit/core/largest_fit.h"
#include "toolkit/report/memory_need.h"
#include "toolkit/run/start_plan.h"

namespace dtk {

static constexpr double kMaxPlanning = 20;  // seconds

std::optional<int64_t> OtherFits::bytes_with(const std::function<void(RunConfig&)>& edit) const {
  if (placement_is_open(judged_.loaded.config)) return std::nullopt;
  if (world_.stop_requested && world_.stop_requested()) return std::nullopt;
  if (world_.watch && world_.watch() - begin_ > kMaxPlanning) return std::nullopt;
  LoadedConfig other = judged_.loaded;
  edit(other.config);
  if (judged_.plan.precision) other.config.policies.precision.cpu = *judged_.plan.precision;
  const StartPlan planned = start_plan(world_, std::move(other), judged_.device);
  if (!planned.memory) return std::nullopt;
  return planned.need(judged_.with_host).bytes();
}

bool OtherFits::weights_divided() const {
  const policies::ShardOptions& shard = judged_.loaded.config.policies.shard;
  if (judged_.loaded.ranks == 1 || shard.enabled == policies::Enabled::off) return false;
  if (shard.level != policies::ShardLevel::optimizer) return false;
  const auto bytes =
      bytes_with([](RunConfig& config) { config.policies.shard.level = policies::ShardLevel::parameters; });
  return bytes && fits_in(*bytes, judged_.limit);
}

FewerSamples OtherFits::largest_with(int64_t accumulate) const {
  const RunConfig& config = judged_.loaded.config;
  // A part of a micro-batch has at least one sample.
  const int64_t unit = accumulate * config.memory.split;
  const int64_t most = (config.data.batch - 1) / unit;
  if (most < 1) return {.is_known = true};
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
  if (!all_planned) return {};
  if (found.fitting == 0) return {.is_known = true};
  return {.is_known = true, .most = StepSize{found.fitting * unit, accumulate}};
}

FewerSamples OtherFits::fewer_samples() const {
  const int64_t accumulate = judged_.loaded.config.train.accumulate, ranks = judged_.loaded.ranks;
  FewerSamples found = largest_with(accumulate);
  if (found.is_known && !found.most && accumulate > ranks) found = largest_with(ranks);
  return found;
}

std::optional<int64_t> OtherFits::accumulate(const FewerSamples& fewer) const {
  const RunConfig& config = judged_.loaded.config;
  if (!fewer.most || fewer.most->accumulate < config.train.accumulate) return std::nullopt;
  const int64_t micro_batch = fewer.most->batch / fewer.most->accumulate;  // fits, in a step of fewer samples
  const int64_t first = (config.data.batch + micro_batch - 1) / micro_batch;
  std::vector<int64_t> allowed;
  for (int64_t more = first; more <= config.data.batch / config.memory.split; ++more) {
    if (config.data.batch % more == 0 && more % judged_.loaded.ranks == 0) allowed.push_back(more);
  }
  const auto fits = [&](int64_t more) {
    const auto bytes = bytes_with([&](RunConfig& other) { other.train.accumulate = more; });
    return bytes && fits_in(*bytes, judged_.limit);
  };
  if (allowed.empty() || !fits(allowed.back())) return std::nullopt;  // the last takes least
  return *std::find_if(allowed.begin(), allowed.end() - 1, fits);
}

}  // namespace dtk
