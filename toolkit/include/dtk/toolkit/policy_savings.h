// What each policy saved in a run: the run's own step, measured once with the policy left out.
#pragma once
#include <dtk/policies/phase_meter.h>
#include <dtk/policies/report.h>
#include <dtk/toolkit/trainer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtk {

struct PolicySaving {
  policies::PolicyReport report;
  // Bytes by which the policy lowers the peak of a forward and backward pass beside all others of the run, or
  // that it keeps off the device throughout; nothing where that could not be measured. May be negative.
  std::optional<int64_t> bytes;
  std::string note;  // why there are no bytes
};

/// One entry for each policy. Runs one trial step as the run had it and one for each active policy without
/// it, of one micro-batch. `meter` must be registered: it sees phases "trial" and "trial without <policy>",
/// so read what you want to keep of it first. A step that does not fit becomes a note.
std::vector<PolicySaving> measure_savings(const Trainer& trainer, const RunConfig& config,
                                          const policies::PhaseMeter& meter);

/// A table for people, one line a policy.
std::string savings_table(const std::vector<PolicySaving>& savings);

}  // namespace dtk
