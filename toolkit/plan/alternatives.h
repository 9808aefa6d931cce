// What else policies.checkpoint could be set to for a job, and what that takes, each choice planned: other
// values of keep and segment.
//
// A choice is told only where it lowers the job's peak or recomputes less; one that a policy or the
// configuration refuses is left out too.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "toolkit/plan/plan.h"

namespace dtk {

struct CheckpointChoice {
  std::string key, value;    // of policies.checkpoint: keep, "offload" with its quotes
  policies::PhasePeak peak;  // of the training device
  policies::PhasePeak host;
  int64_t recomputed = 0;  // FLOPs that a steady step recomputes
};

struct CheckpointChoices {
  std::vector<CheckpointChoice> choices;  // the lowest peak first
  int64_t planned = 0;                    // with those that are left out
  double seconds = 0;                     // that they took
};

/// Of the job that `plan` is of. `written`: its policies.checkpoint, before keep = "auto" was replaced by
/// what was chosen. Where that is switched off, the choices are with it on. Throws planner::PlanError.
CheckpointChoices checkpoint_choices(const Plan& plan, const policies::CheckpointOptions& written,
                                     c10::Device device, const planner::SimulationOptions& options = {});

/// A table for a terminal of 80 columns, with the job itself as a row.
std::string checkpoint_choices_text(const Plan& plan, const CheckpointChoices& found);

/// {"planned", "seconds", "choices": [{"set", "peak_bytes", "phase", "host_bytes", "recomputed_flops"}]};
/// `set` is what --set takes.
nlohmann::ordered_json checkpoint_choices_json(const CheckpointChoices& found);

}  // namespace dtk
