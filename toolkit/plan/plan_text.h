// What dit-plan prints: texts for a terminal of 80 columns, and JSON.
//
// JSON of a plan: memory.json (memory_report.h), whose `policies` are there with --explain (then
// `lowers_peak_by` is planned, for the whole job) and in rows of a table (whether each is on), and in
// addition
//   "plan": {"batch", "ranks", "sent_in_step": {collective: {"bytes", "messages"}}, "host_phase",
//   "runner_up": {"phase", "bytes"} or null,
//            "saved_by_operator": {operator: bytes}, "folded": {loop: passes},
//            "step_flops": {"forward", "backward", "recomputed", "attention_again"}, "seconds",
//            "beside": {"device", "allocator"}, "reserved": as in memory.json, on a device,
//            "device_terms": [{"name", "bytes", "on_host", "in_the_peaks", "known", "formula", "source",
//                              "measured"}],
//            "scratch": {"source", "measured_calls", "largest", "not_known": [operator]},
//            "precisions": [{"cpu", "peak_bytes", "phase"}]}
// `beside`: bytes of the terms that a whole device, and LibTorch's allocator in it, hold beside the peak.
// `saved_by_operator` splits the bytes saved at the peak once more, by the operator that made them;
// `precisions` has two entries where training will measure which to take, else none. A table is an array of
// these, one for each combination of the policies, the lowest peak first. --explain adds "why"
// (explanation_json.h), "checkpoint_choices" (alternatives.h) and
// "per_token" (per_token.h). --max-batch adds "largest_batch":
// {"budget_bytes", "batch", "peak_bytes", "device_bytes", "next_batch", "next_peak_bytes",
// "next_device_bytes", "planned", "all_recomputed", "not_counted": [what a plan does not know]}, with null
// for what the data ended. Of a job with policies.checkpoint.keep = "auto" "placement" is what was chosen and
// planned (placement_json()).
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/device/cards.h"
#include "toolkit/plan/alternatives.h"
#include "toolkit/plan/per_token.h"
#include "toolkit/plan/plan.h"

namespace dtk {

/// What the plan's bytes leave out, because only a measurement tells it: "scratch of 5 operators" of the
/// CPU's, names of what a device adds.
std::vector<std::string> not_counted(const Plan& plan);

/// What was measured of it, or "never".
std::string measured_text(const planner::DeviceTerm& term);

/// What was done to the policy in `effect.switched`: "switched on", or as its kind calls what is off.
std::string switch_words(const PolicyEffect& effect);

/// What fits and what it takes. `name`: of the configuration, for the first line.
std::string plan_summary_text(const std::string& name, const Plan& plan);
/// What is alive at the peak, and the peak of each phase.
std::string plan_tables_text(const Plan& plan);
/// Both, as all that dit-plan prints in the unit of the peak.
std::string plan_text(const std::string& name, const Plan& plan);
nlohmann::ordered_json plan_json(const Plan& plan, const std::vector<PolicyEffect>& effects = {},
                                 const planner::Explanation* why = nullptr,
                                 const CheckpointChoices* others = nullptr,
                                 const PerToken* per_token = nullptr);

/// One line a row; with a budget also whether it fits. `seconds`: that making the table took.
std::string plan_table_text(const std::string& name, const std::vector<PlanRow>& rows,
                            std::optional<int64_t> budget, double seconds);
nlohmann::ordered_json plan_table_json(const std::vector<PlanRow>& rows);

/// One entry a policy: by how much the peak changes, which categories of it, what else.
std::string explain_text(const Plan& plan, const std::vector<PolicyEffect>& effects);

/// `found.largest` must be there. `card`: whose memory `bytes` is; null: of none that has a name.
std::string largest_batch_text(const std::string& name, const LargestPlannedBatch& found, int64_t bytes,
                               const Card* card = nullptr);
nlohmann::ordered_json largest_batch_json(const LargestPlannedBatch& found, int64_t bytes);

}  // namespace dtk
