#include <algorithm>

#include "toolkit/config/policy_switches.h"
#include "toolkit/core/errors.h"
#include "toolkit/plan/plan.h"
#include "toolkit/plan/planned_run.h"

namespace dtk {
namespace {

constexpr size_t kCheckpoint = 3;  // of switched_policies

LoadedConfig with_checkpoint(const Plan& plan, c10::Device device, bool on) {
  LoadedConfig loaded = plan.loaded;
  PolicySwitches switches = switches_of(loaded.config, device);
  switches[kCheckpoint] = on;
  loaded.config = with_switches(std::move(loaded.config), device, switches);
  return loaded;
}

std::string report_of(const std::vector<policies::PolicyReport>& reports, const char* policy) {
  for (const policies::PolicyReport& report : reports) {
    if (report.policy == policy) return std::string("policies.") + policy + ", which " + report.reason;
  }
  return std::string("policies.") + policy;
}

std::vector<planner::Alternative> alternatives_of(const std::vector<PolicyEffect>& effects) {
  std::vector<planner::Alternative> all;
  for (const PolicyEffect& effect : effects) {
    planner::Alternative one{effect.policy + (effect.on ? " switched off" : " switched on"), effect.problem};
    if (effect.switched) one.peak = effect.switched->memory.peak();
    all.push_back(std::move(one));
  }
  std::stable_sort(all.begin(), all.end(), [](const planner::Alternative& a, const planner::Alternative& b) {
    const bool possible = a.problem.empty(), other = b.problem.empty();
    return possible != other ? possible : a.peak.peak.bytes < b.peak.peak.bytes;
  });
  return all;
}

}  // namespace

planner::Explanation explain_segments(const Plan& plan, const std::vector<PolicyEffect>& effects,
                                      c10::Device device, const planner::SimulationOptions& options) {
  const auto observed = [&](bool on, std::vector<policies::PolicyReport>& reports) {
    return planner::observe(device, [&] {
      PlannedRun run = plan_run(with_checkpoint(plan, device, on), device, options);
      reports = std::move(run.policies);
      return std::move(run.memory);
    });
  };
  planner::Explanation why;
  std::vector<policies::PolicyReport> reports;
  why.plain = observed(false, reports);
  why.recomputes = switches_of(plan.loaded.config, device)[kCheckpoint];
  try {
    why.recomputed = observed(true, reports);
    why.segments = report_of(reports, switched_policies[kCheckpoint]);
  } catch (const ConfigError&) {
    // `effects` say why it cannot be switched on.
  }
  why.alternatives = alternatives_of(effects);
  return why;
}

}  // namespace dtk
