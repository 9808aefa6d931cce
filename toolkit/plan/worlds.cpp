#include "toolkit/plan/worlds.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text_table.h"
#include "toolkit/distributed/agreement.h"
#include "toolkit/plan/plan_text.h"
#include "toolkit/report/level_choice.h"

namespace dtk {

using policies::Category;

LoadedConfig on_ranks(LoadedConfig loaded, int64_t ranks) {
  int64_t& accumulate = loaded.config.train.accumulate;
  const int64_t micro_batch = samples_of_micro_batch(loaded.config);
  accumulate = (accumulate + ranks - 1) / ranks * ranks;
  loaded.config.data.batch = micro_batch * accumulate;
  loaded.origins["train.accumulate"] = {Origin::Source::planned, "a multiple of the ranks"};
  share_out(loaded, ranks);
  return loaded;
}

namespace {

constexpr auto kParameters = policies::ShardLevel::parameters;

bool divides(const LoadedConfig& loaded) {
  return loaded.ranks > 1 && loaded.config.policies.shard.enabled != policies::Enabled::off;
}

// Weights, moments, and an average that is kept there: between two steps, as while weights are updated.
int64_t state_of(const Plan& plan) {
  const policies::PhasePeak* const update = policies::phase_named(plan.memory.phases, "optimizer");
  const policies::MemorySums sums = (update == nullptr ? plan.memory.peak() : *update).peak;
  int64_t state = 0;
  for (const Category category : {Category::parameters, Category::frozen, Category::optimizer, Category::ema})
    state += sums.of(category);
  return state;
}

}  // namespace

std::string divided(const LoadedConfig& loaded) {
  return divides(loaded) ? policies::text_of(loaded.config.policies.shard.level) : "nothing";
}

static Plan plan_one(const LoadedConfig& loaded, c10::Device device,
                     const planner::SimulationOptions& options) {
  LoadedConfig placed = loaded;
  std::optional<CheckpointPlacement> placement;
  if (placement_is_open(loaded.config)) placement = place_checkpoints(placed, device, options);
  Plan plan = plan_highest_rank(placed, device, options);
  plan.placement = std::move(placement);
  return plan;
}

PlannedWorlds plan_worlds(const LoadedConfig& loaded, c10::Device device, const std::vector<int64_t>& worlds,
                          const planner::SimulationOptions& options) {
  PlannedWorlds planned;
  for (const int64_t ranks : worlds) {
    LoadedConfig one = on_ranks(loaded, ranks);
    LoadedConfig divided_weights = one;
    take_level(one.config, policies::ShardLevel::optimizer);
    planned.plans.push_back(plan_one(one, device, options));
    if (!divides(one) || one.config.policies.shard.level == kParameters) continue;
    divided_weights.config.policies.shard.level = kParameters;
    try {
      planned.plans.push_back(plan_one(divided_weights, device, options));
    } catch (const std::exception& error) {  // of a row that nobody asked for
      planned.left_out = first_line(error.what());
    }
  }
  return planned;
}

std::string worlds_text(const std::string& name, const LoadedConfig& loaded, const PlannedWorlds& worlds) {
  const std::vector<Plan>& plans = worlds.plans;
  int64_t highest = 0;
  for (const Plan& plan : plans) highest = std::max(highest, plan.memory.peak().peak.bytes);
  const ByteUnit unit = unit_for(highest);
  std::vector<std::vector<std::string>> rows = {{"ranks", "divided", "data.batch", "micro-batches",
                                                 "each runs", "state", "peak", "host", "sent a step",
                                                 "messages"}};
  for (const Plan& plan : plans) {
    const policies::PhasePeak peak = plan.memory.peak();
    const policies::Traffic sent = total(plan.sent);
    const int64_t micro_batches = plan.loaded.config.train.accumulate, ranks = plan.loaded.ranks;
    rows.push_back({std::to_string(ranks), divided(plan.loaded),
                    std::to_string(plan.loaded.config.data.batch), std::to_string(micro_batches),
                    std::to_string(micro_batches / ranks), in_unit(state_of(plan), unit),
                    in_unit(peak.peak.bytes, unit), in_unit(plan.memory.host.peak.bytes, unit),
                    in_unit(sent.bytes, unit), std::to_string(sent.messages)});
  }
  const c10::Device device = plans.front().memory.device;
  return fmt::format(
      "{} on {}, micro-batches of {}, of which data.batch has as many as the ranks divide: planned, nothing "
      "was computed\n"
      "In {}, tensors of the rank that holds most; divided: by policies.shard.level; state: weights, "
      "moments, and an average that is kept there. Sent: by each.{}\n\n{}{}",
      name, device.str(), samples_of_micro_batch(loaded.config), unit.name,
      device.is_cuda() ? " What the device adds and NCCL takes is not in it." : "", aligned(rows),
      worlds.left_out.empty() ? "" : "\nlevel = \"parameters\" is left out: " + worlds.left_out + "\n");
}

nlohmann::ordered_json worlds_json(const std::vector<Plan>& plans) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Plan& plan : plans) all.push_back(plan_json(plan));
  return all;
}

}  // namespace dtk
