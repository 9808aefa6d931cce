#include "toolkit/run/escalation.h"

#include <dtk/policies/policy_kind.h>

#include <algorithm>
#include <utility>

#include "toolkit/config/keys.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/run/out_of_memory.h"

namespace dtk {
namespace {

std::optional<int64_t> room_for(const c10::OutOfMemoryError& error, const StartPlan& now) {
  if (const std::optional<policies::RefusedAllocation> refused = refused_by(error))
    return refused->limit ? *refused->limit : refused->live.bytes + refused->bytes - 1;
  const std::optional<int64_t> planned = planned_bytes(now);
  if (!planned) return std::nullopt;
  return *planned - 1;
}

// A plan that keep = "auto" is chosen by, and one of a CPU that measures its kernels, asks for the budget.
StartPlan plan_within(std::optional<int64_t> room, LoadedConfig loaded, c10::Device device,
                      const RunWorld& world) {
  if (!world.plan) return {std::nullopt, "nobody plans this run"};
  if (room && device.is_cpu()) loaded.config.memory.budget = ByteSize{*room};
  return world.plan(loaded, device);
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

std::vector<RunConfig> tighter_choices(const RunConfig& config, c10::Device device) {
  std::vector<RunConfig> choices;
  RunConfig choice = config;
  for (const policies::PolicyKind* const kind : policies::policy_kinds()) {
    for (policies::PolicyOptions& options : kind->tighter(choice.policies, device)) {
      choice.policies = std::move(options);
      choices.push_back(choice);
    }
  }
  const int64_t micro_batch = config.data.batch / config.train.accumulate;
  while (samples_at_once(choice) > 1) {
    choice.memory.split = std::min(2 * choice.memory.split, micro_batch);
    choices.push_back(choice);
  }
  return choices;
}

std::optional<Escalation> next_choice(const LoadedConfig& loaded, const RunConfig& given, c10::Device device,
                                      int64_t step, const c10::OutOfMemoryError& error, const StartPlan& now,
                                      const RunWorld& world) {
  const std::optional<int64_t> room = room_for(error, now);
  std::vector<RunConfig> choices = tighter_choices(loaded.config, device);
  if (placement_is_open(given) && room && device.is_cpu()) {
    choices.insert(choices.begin(), loaded.config);
    choices.front().policies.checkpoint = given.policies.checkpoint;
  }
  for (RunConfig& choice : choices) {
    Escalation next{.loaded = loaded, .plan = {}, .chosen = {}, .room = room, .saved_as = {}};
    next.loaded.config = std::move(choice);
    next.plan = plan_within(room, next.loaded, device, world);
    if (!next.plan.refusal.empty()) continue;
    if (next.plan.placement) adopt_placement(next.loaded, *next.plan.placement);
    const std::optional<int64_t> planned = planned_bytes(next.plan);
    if (planned && room && *planned > *room) continue;
    note_origins(next.loaded, loaded.config, step);
    next.chosen = chosen_text(loaded.config, next.loaded.config);
    if (next.chosen.empty()) continue;
    return next;
  }
  return std::nullopt;
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
