// What each policy saved in a run: the run's own step, measured once with the policy left out.
#pragma once
#include <dtk/policies/phase_meter.h>
#include <dtk/policies/report.h>
#include <dtk/toolkit/trainer.h>

#include <cstdint>
#include <functional>
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

/// What may keep trial steps from being run; each is asked before each of them, and may be null.
struct TrialLimits {
  std::function<std::optional<int64_t>()> available;  // bytes that this machine can still give
  std::function<bool()> stop_requested;               // then what is not measured yet stays so
};

/// One entry for each policy. Runs one trial step as the run had it and one for each active policy without
/// it, of one micro-batch. `meter` must be registered: it sees phases "trial" and "trial without <policy>",
/// so read what you want to keep of it first. On the CPU a step may take half of `available`, within any
/// limit that holds already: what Linux promises beyond its memory would end the process. A step that does
/// not fit or fails becomes a note; nothing is thrown.
std::vector<PolicySaving> measure_savings(const Trainer& trainer, const RunConfig& config,
                                          const policies::PhaseMeter& meter, const TrialLimits& limits = {});

/// A table for people, one line a policy.
std::string savings_table(const std::vector<PolicySaving>& savings);

}  // namespace dtk
