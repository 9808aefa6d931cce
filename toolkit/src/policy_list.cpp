#include <dtk/policies/ema.h>
#include <dtk/policies/module_path.h>
#include <dtk/toolkit/policy_list.h>

namespace dtk {

std::vector<std::unique_ptr<policies::Policy>> make_policies(const PolicyOptions& options,
                                                             models::Dit& model) {
  model.seam.run = policies::run_with_module_path();
  std::vector<std::unique_ptr<policies::Policy>> list;
  if (options.ema.enabled != policies::Enabled::off) {
    list.push_back(std::make_unique<policies::Ema>(options.ema, model.parameters()));
  }
  return list;
}

std::vector<policies::PolicyReport> policy_reports(
    const PolicyOptions& options, const std::vector<std::unique_ptr<policies::Policy>>& active) {
  std::vector<policies::PolicyReport> reports;
  for (const auto& policy : active) reports.push_back(policy->report());
  if (options.ema.enabled == policies::Enabled::off) {
    reports.push_back({"ema", false, "switched off: policies.ema.enabled = false", 0});
  }
  return reports;
}

}  // namespace dtk
