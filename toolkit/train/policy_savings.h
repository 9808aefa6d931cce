// What each policy saved in a run: the run's own step, measured once with the policy left out.
#pragma once
#include <dtk/policies/phase_meter.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/report/memory_report.h"
#include "toolkit/train/trainer.h"

namespace dtk {

/// What may keep trial steps from being run; each is asked before each of them, and may be null.
struct TrialLimits {
  std::function<std::optional<int64_t>()> available;  // bytes that this machine can still give
  std::function<bool()> stop_requested;               // then what is not measured yet stays so
  std::function<double()> seconds = {};               // a clock; null: nothing is timed
  double run_seconds = 0;                             // that training took
};

/// One entry for each policy. Runs one trial step as the run had it and one for each active policy without
/// it, of one micro-batch; where a policy has another setting to compare (PolicyKind::other_setting) one more
/// with that, and the note says which is lower. `meter` must be registered: it sees phases "trial", "trial
/// without <policy>" and "trial with <setting>", so read what you want to keep of it first. On the CPU a step
/// may take half of `available`, within any limit that holds already: what Linux promises beyond its memory
/// would end the process. A step that does not fit or fails becomes a note; nothing is thrown. Then steps
/// with and without the policy are timed in turns: 5 pairs, or as many as begin within 2 s.
std::vector<PolicySaving> measure_savings(const Trainer& trainer, const RunConfig& config,
                                          const policies::PhaseMeter& meter, const TrialLimits& limits = {});

}  // namespace dtk
