#include <c10/util/Exception.h>
#include <dtk/policies/memory_accounts.h>
#include <dtk/toolkit/memory_report.h>
#include <dtk/toolkit/policy_savings.h>
#include <dtk/toolkit/trial_step.h>

#include <algorithm>

namespace dtk {
namespace {

int64_t peak_of(const policies::PhaseMeter& meter, const std::string& phase) {
  for (const policies::PhasePeak& entry : meter.phases()) {
    if (entry.name == phase) return entry.peak.bytes;
  }
  return 0;
}

policies::PolicyOptions without(policies::PolicyOptions options, const std::string& policy) {
  policies::PolicyOptions::tables(options, [&](const char* name, auto& one) {
    if (name == policy) one.enabled = policies::Enabled::off;
  });
  return options;
}

}  // namespace

std::vector<PolicySaving> measure_savings(const Trainer& trainer, const RunConfig& config,
                                          const policies::PhaseMeter& meter) {
  const int64_t batch = config.data.batch / config.train.accumulate;
  const auto peak = [&](const std::string& phase, const policies::PolicyOptions& options) {
    const policies::PhaseScope scope(phase);
    TrialStep(config, trainer.model(), options, batch).run();
    return peak_of(meter, phase);
  };
  std::vector<PolicySaving> savings;
  std::optional<int64_t> with_all;
  for (const policies::PolicyReport& report : trainer.policies().reports()) {
    PolicySaving saving{report, std::nullopt, ""};
    if (report.saved_bytes || !report.active) {
      saving.bytes = report.saved_bytes.value_or(0);
      savings.push_back(std::move(saving));
      continue;
    }
    try {
      if (!with_all) with_all = peak("trial", config.policies);
      saving.bytes =
          peak("trial without " + report.policy, without(config.policies, report.policy)) - *with_all;
    } catch (const c10::OutOfMemoryError&) {
      saving.note = with_all ? "a step without it does not fit" : "no room left for a trial step";
    }
    savings.push_back(std::move(saving));
  }
  return savings;
}

std::string savings_table(const std::vector<PolicySaving>& savings) {
  std::string text =
      "policies, and by how much each lowers the peak of a step (measured by leaving it out)\n";
  for (const PolicySaving& saving : savings) {
    const std::string bytes = !saving.bytes       ? saving.note
                              : *saving.bytes < 0 ? "-" + readable_bytes(-*saving.bytes)
                                                  : readable_bytes(*saving.bytes);
    std::string line = "  " + saving.report.policy;
    line.resize(std::max<size_t>(line.size(), 14), ' ');
    line += saving.report.active ? "on   " : "off  ";
    line += std::string(bytes.size() < 10 ? 10 - bytes.size() : 0, ' ') + bytes;
    text += line + "   " + saving.report.reason + "\n";
  }
  return text;
}

}  // namespace dtk
