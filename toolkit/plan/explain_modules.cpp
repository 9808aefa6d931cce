#include <algorithm>

#include "toolkit/core/errors.h"
#include "toolkit/plan/plan.h"
#include "toolkit/plan/plan_text.h"
#include "toolkit/plan/planned_run.h"

namespace dtk {
namespace {

LoadedConfig with_recomputing(const Plan& plan, c10::Device device, bool on) {
  LoadedConfig loaded = plan.loaded;
  policies::recomputing_kind().switch_to(loaded.config.policies, device, on);
  return loaded;
}

std::string policy_with_reason(const std::vector<policies::PolicyReport>& reports,
                               const std::string& policy) {
  const policies::PolicyReport* const report = policies::report_of(reports, policy);
  return "policies." + policy + (report == nullptr ? "" : ", which " + report->reason);
}

std::vector<planner::Alternative> alternatives_of(const std::vector<PolicyEffect>& effects) {
  std::vector<planner::Alternative> all;
  for (const PolicyEffect& effect : effects) {
    planner::Alternative one{effect.policy + " " + switch_words(effect), effect.problem};
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
      PlannedRun run = plan_run(with_recomputing(plan, device, on), device, options);
      reports = std::move(run.policies);
      return std::move(run.memory);
    });
  };
  const policies::PolicyKind& recomputing = policies::recomputing_kind();
  planner::Explanation why;
  std::vector<policies::PolicyReport> reports;
  why.plain = observed(false, reports);
  why.recomputes = recomputing.is_on(plan.loaded.config.policies, device);
  try {
    why.recomputed = observed(true, reports);
    why.segments = policy_with_reason(reports, recomputing.name());
  } catch (const ConfigError&) {
    // `effects` say why it cannot be switched on.
  }
  why.alternatives = alternatives_of(effects);
  return why;
}

}  // namespace dtk
