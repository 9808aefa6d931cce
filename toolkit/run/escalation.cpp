#include "toolkit/run/escalation.h"

#include <dtk/policies/policy_kind.h>

#include <algorithm>
#include <utility>

#include "toolkit/config/keys.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/run/out_of_memory.h"
#include "toolkit/run/start_plan.h"

namespace dtk {
namespace {

// Bytes that a choice may be planned to take, of the memory that was refused. Always less than what is
// planned now, so that each choice takes less than the one before.
std::optional<int64_t> room_for(const c10::OutOfMemoryError& error, const RunConfig& config,
                                const StartPlan& now) {
  std::optional<int64_t> room;
  const auto at_most = [&](int64_t bytes) { room = std::min(room.value_or(bytes), bytes); };
  if (const std::optional<policies::RefusedAllocation> refused = refused_by(error))
    at_most(refused->limit ? *refused->limit : refused->live.bytes + refused->bytes - 1);
  if (config.memory.budget) at_most(config.memory.budget->bytes);
  if (const std::optional<int64_t> planned = planned_bytes(now)) at_most(*planned - 1);
  return room;
}

// Where a budget is not what refused, host memory is the CPU's own.
int64_t with_host(int64_t bytes, const StartPlan& plan, const c10::OutOfMemoryError& error) {
  const std::optional<policies::RefusedAllocation> refused = refused_by(error);
  const bool is_shared = plan.memory->device.is_cpu() && refused && !refused->limit;
  return bytes + (is_shared ? plan.memory->host.peak.bytes : 0);
}

// Memory of the host, which the choices for a device would take more of.
bool is_of_host(const c10::OutOfMemoryError& error, c10::Device device) {
  const std::optional<policies::RefusedAllocation> refused = refused_by(error);
  return refused &&
         refused->tier != (device.is_cpu() ? policies::MemoryTier::cpu : policies::MemoryTier::device);
}

void note_origins(LoadedConfig& loaded, const RunConfig& before, int64_t step) {
  for (const ConfigDifference& one : differences(before, loaded.config))
    loaded.origins[one.key] = {Origin::Source::escalated, fmt::format("after step {}", step)};
}

std::string chosen_text(const RunConfig& before, const RunConfig& now) {
  std::vector<std::string> settings;
  for (const ConfigDifference& one : differences(before, now)) settings.push_back(one.key + " = " + one.b);
  return listed(settings, ", ");
}

}  // namespace

std::optional<int64_t> planned_bytes(const StartPlan& plan) {
  if (!plan.memory) return std::nullopt;
  return plan.memory->peak().peak.bytes + plan.beside.bytes;
}

std::vector<RunConfig> tighter_policies(const RunConfig& config, c10::Device device) {
  std::vector<RunConfig> choices;
  RunConfig choice = config;
  for (const policies::PolicyKind* const kind : policies::policy_kinds()) {
    for (policies::PolicyOptions& options : kind->tighter(choice.policies, device)) {
      choice.policies = std::move(options);
      choices.push_back(choice);
    }
  }
  return choices;
}

std::vector<RunConfig> smaller_parts(const RunConfig& config) {
  std::vector<RunConfig> choices;
  RunConfig choice = config;
  const int64_t micro_batch = samples_of_micro_batch(config);
  while (samples_at_once(choice) > 1) {
    choice.memory.split = std::min(2 * choice.memory.split, micro_batch);
    choices.push_back(choice);
  }
  return choices;
}

namespace {

// With what keep = "auto" would choose for less room, as long as not everything is recomputed.
std::vector<RunConfig> policies_left(const RunConfig& now, const RunConfig& given, c10::Device device) {
  if (!placement_is_open(given)) return tighter_policies(now, device);
  RunConfig base = now;
  base.policies.checkpoint = given.policies.checkpoint;  // with all its targets
  std::vector<RunConfig> choices = tighter_policies(base, device);
  choices.insert(choices.begin(), base);
  const auto here = std::find(choices.begin(), choices.end(), now);
  if (here != choices.end()) choices.erase(choices.begin(), here + 1);
  return choices;
}

class ChoiceSearch {
 public:
  ChoiceSearch(const LoadedConfig& loaded, c10::Device device, int64_t step,
               const c10::OutOfMemoryError& error, const StartPlan& now, const RunWorld& world)
      : loaded_(loaded),
        device_(device),
        step_(step),
        error_(error),
        world_(world),
        room_(room_for(error, loaded.config, now)),
        min_bytes_(planned_bytes(now)) {}

  // Whether it is to be taken; then, or if it takes less than all before, it is the lowest.
  bool try_one(RunConfig choice) {
    Escalation next{.loaded = loaded_, .plan = {}, .chosen = {}, .room = room_, .saved_as = {}};
    next.loaded.config = std::move(choice);
    LoadedConfig planned = next.loaded;
    // What keep = "auto" is chosen by, and what a CPU's kernels are measured within.
    if (room_ && (device_.is_cpu() || placement_is_open(planned.config)))
      planned.config.memory.budget = ByteSize{*room_};
    next.plan = start_plan(world_, planned, device_);
    if (!next.plan.refusal.empty()) return false;
    if (next.plan.placement) adopt_placement(next.loaded, *next.plan.placement);
    if (placement_is_open(next.loaded.config)) return false;
    note_origins(next.loaded, loaded_.config, step_);
    next.chosen = chosen_text(loaded_.config, next.loaded.config);
    if (next.chosen.empty()) return false;
    const std::optional<int64_t> bytes = planned_bytes(next.plan);
    if (bytes && min_bytes_ && *bytes >= *min_bytes_) return false;
    const bool fits = !bytes || !room_ || with_host(*bytes, next.plan, error_) <= *room_;
    min_bytes_ = bytes;
    lowest_ = std::move(next);
    return fits;
  }
  const std::optional<Escalation>& lowest() const { return lowest_; }

 private:
  const LoadedConfig& loaded_;
  const c10::Device device_;
  const int64_t step_;
  const c10::OutOfMemoryError& error_;
  const RunWorld& world_;
  const std::optional<int64_t> room_;
  std::optional<int64_t> min_bytes_;
  std::optional<Escalation> lowest_;
};

}  // namespace

std::optional<Escalation> next_choice(const LoadedConfig& loaded, const RunConfig& given, c10::Device device,
                                      int64_t step, const c10::OutOfMemoryError& error, const StartPlan& now,
                                      const RunWorld& world, std::optional<Escalation>& lowest) {
  if (is_of_host(error, device)) return std::nullopt;
  ChoiceSearch search(loaded, device, step, error, now, world);
  const auto taken = [&](const std::vector<RunConfig>& choices) {
    for (const RunConfig& choice : choices) {
      if (world.stop_requested && world.stop_requested()) return false;
      if (search.try_one(choice)) return true;
    }
    return false;
  };
  const bool found = taken(policies_left(loaded.config, given, device)) ||
                     taken(smaller_parts(search.lowest() ? search.lowest()->loaded.config : loaded.config));
  if (found) return search.lowest();
  lowest = search.lowest();
  return std::nullopt;
}

std::string no_choice_text(const Escalation& lowest, int64_t step) {
  return fmt::format(
      "step {} was refused memory, and no choice fits: the least, with {}, is planned to take {} bytes in "
      "phase {}{}",
      step + 1, lowest.chosen, *planned_bytes(lowest.plan), lowest.plan.memory->peak().name,
      lowest.room ? fmt::format(", of {} that there are", *lowest.room) : "");
}

std::string escalation_text(const Escalation& escalation, int64_t step, bool taken_back,
                            const c10::OutOfMemoryError& error) {
  std::string plan = "not planned: " + escalation.plan.problem;
  if (escalation.plan.memory) {
    const policies::PhasePeak peak = escalation.plan.memory->peak();
    plan = fmt::format("planned peak {} bytes in phase {}", *planned_bytes(escalation.plan), peak.name);
    if (escalation.room) plan += fmt::format(", of {} that there are", *escalation.room);
  }
  return fmt::format(
      "step {}: {}; the run goes on from {} with {} ({})",
      taken_back ? fmt::format("{} was refused memory and is taken back, nothing of it remains", step + 1)
                 : fmt::format("{} took more memory than there may be", step),
      first_line(error.what_without_backtrace()), escalation.saved_as.string(), escalation.chosen, plan);
}

std::string adopt_escalations(LoadedConfig& loaded, const LoadedConfig& written) {
  std::vector<std::string> keys;
  for (const auto& [key, origin] : written.origins) {
    if (origin.source == Origin::Source::escalated && !written_by_set(loaded, key)) keys.push_back(key);
  }
  if (keys.empty()) return "";
  copy_keys(written.config, loaded.config, keys);
  for (const std::string& key : keys) loaded.origins[key] = written.origins.at(key);
  return "goes on as the run did after it was refused memory: " + listed(keys, ", ") +
         "; --set says otherwise";
}

}  // namespace dtk
