#include "toolkit/plan/inference.h"

#include <c10/util/Exception.h>

#include "toolkit/config/locations.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/train/apply_policies.h"

namespace dtk {
namespace {

using policies::Enabled;

// Each module a segment, as checkpointing makes them.
ModelFamily::PutIn recomputing(const LoadedConfig& loaded) {
  policies::PolicyOptions only = loaded.config.policies;
  for (const policies::PolicyKind* const kind : policies::policy_kinds()) {
    const bool stays = kind->recomputes() || kind->acts_switched_off();
    kind->enabled(only) = stays ? Enabled::by_default : Enabled::off;
  }
  return [only](models::Seam& seam, const models::NamedTensors& parameters,
                const std::vector<std::string>& paths) {
    seam.policies.clear();  // those in it stay
    put_policies_in(only, seam, parameters, paths);
  };
}

// The key by which somebody asks for the policy in this very job; "": nobody does. What a configuration says
// for its training is another matter.
std::string asked_here(const LoadedConfig& loaded, const policies::PolicyKind& kind) {
  const std::string table = "policies." + kind.name() + ".", enabled = table + "enabled";
  for (const auto& [key, origin] : loaded.origins) {
    if (key.starts_with(table) && origin.source == Origin::Source::set) return key;
  }
  const bool is_on = kind.enabled(loaded.config.policies) == Enabled::on;
  return is_on && !has_end(loaded.config.train) ? enabled : "";
}

}  // namespace

std::string why_no_recomputing(const LoadedConfig& loaded, c10::Device device,
                               const planner::SimulationOptions& options) {
  const auto peak_with = [&](const ModelFamily::PutIn& put_in) {
    return policies::highest(plan_inference(loaded, device, options, put_in).memory.device).peak.bytes;
  };
  return fmt::format(
      "no backward pass: 0 bytes are kept, so recomputing frees none; the peak with it is {} bytes, without "
      "{}",
      peak_with(recomputing(loaded)), peak_with(nullptr));
}

PlannedRun plan_inference(const LoadedConfig& loaded, c10::Device device,
                          const planner::SimulationOptions& options, const ModelFamily::PutIn& put_in) try {
  PlannedRun planned;
  planned.memory = planner::simulate(
      device,
      [&](const planner::EndOfPlan&) {
        planned.policies =
            family_of(loaded.config).infer_planned(loaded.config, device, *loaded.inferred, put_in);
      },
      options);
  return planned;
} catch (const policies::PolicyError& error) {
  throw located(error, loaded.locations);
}

std::vector<std::string> policies_without_use(const LoadedConfig& loaded, c10::Device device,
                                              const planner::SimulationOptions& options) {
  std::vector<std::string> lines;
  for (const policies::PolicyKind* const kind : policies::policy_kinds()) {
    if (kind->acts_without_gradient()) continue;
    const Enabled enabled = kind->enabled(loaded.config.policies);
    if (enabled == Enabled::off) continue;
    const std::string key = asked_here(loaded, *kind);
    const std::string why = kind->recomputes() && (!key.empty() || enabled == Enabled::on)
                                ? why_no_recomputing(loaded, device, options)
                                : "nothing is trained here, so that it has nothing to do";
    if (!key.empty())
      throw ConfigError(fmt::format("{}{} has no effect on a job that only infers: {}; remove it",
                                    location_of(loaded, key), setting_of(loaded.config, key), why));
    if (enabled == Enabled::by_default) continue;
    lines.push_back(kind->name() + ": " + why);
  }
  return lines;
}

std::vector<InferenceRow> inference_table(const LoadedConfig& loaded, c10::Device device,
                                          const planner::SimulationOptions& options) {
  std::vector<InferenceRow> rows;
  const auto add = [&](const std::string& name, const policies::PolicyOptions& changed,
                       const std::string& results = "") {
    LoadedConfig one = loaded;
    one.config.policies = changed;
    InferenceRow row{name, {}, results, {}};
    try {
      row.plan = make_plan(std::move(one), device, options);
    } catch (const ConfigError& error) {
      row.problem = first_line(error.what());
    } catch (const c10::Error& error) {  // more bytes than addresses
      row.problem = first_line(error.what_without_backtrace());
    }
    rows.push_back(std::move(row));
  };
  const policies::PolicyOptions& all = loaded.config.policies;
  add("all, as configured", all);
  policies::PolicyOptions none = all;
  for (const policies::PolicyKind* const kind : policies::inference_kinds()) {
    for (const policies::OtherSetting& part : kind->parts_left_out(all))
      add(part.other, part.options, part.results);
    if (!kind->is_on(all, device)) continue;
    kind->switch_to(none, device, false);
    policies::PolicyOptions without = all;
    kind->switch_to(without, device, false);
    add("without " + kind->name(), without);
  }
  add("none", none);
  return rows;
}

std::vector<LoadedConfig> tighter_choices(const LoadedConfig& loaded, c10::Device device) {
  std::vector<LoadedConfig> choices{loaded};
  for (const policies::PolicyKind* const kind : policies::inference_kinds()) {
    for (policies::PolicyOptions& one : kind->tighter(loaded.config.policies, device)) {
      choices.push_back(loaded);
      choices.back().config.policies = std::move(one);
    }
  }
  return choices;
}

LoadedConfig within_budget(const LoadedConfig& loaded, c10::Device device, int64_t budget,
                           const planner::SimulationOptions& options) {
  for (LoadedConfig& choice : tighter_choices(loaded, device)) {
    if (make_plan(choice, device, options).need_in(Capacity::allocator).fits(budget))
      return std::move(choice);
  }
  return loaded;
}

}  // namespace dtk
