// Plans of a job that infers and trains nothing: LoadedConfig::inferred says on how many frames, or whatever
// the family calls them (ModelFamily::inferred()). make_plan() plans one; here are what it is made of, rows
// of policies left out, and what it takes as a function of the count.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "toolkit/plan/plan.h"
#include "toolkit/plan/planned_run.h"
#include "toolkit/train/model_family.h"

namespace dtk {

/// As plan_run(), of `*loaded.inferred` of what the family infers.
PlannedRun plan_inference(const LoadedConfig& loaded, c10::Device device,
                          const planner::SimulationOptions& options = {},
                          const ModelFamily::PutIn& put_in = nullptr);

/// Lines for policies that a configuration asks for, for its training, and that this job has no use for, such
/// as checkpointing, whose peak with it is planned beside. Throws ConfigError for such a policy that is asked
/// for here: by a key of it with --set, or in a configuration that trains nothing.
std::vector<std::string> policies_without_use(const LoadedConfig& loaded, c10::Device device,
                                              const planner::SimulationOptions& options = {});

/// The job with all of the policies that act in it, without each of their parts, and without any.
struct InferenceRow {
  std::string name;  // "all", "frame_chunk = 0", "none"
  Plan plan;
  std::string results = {};  // PolicyKind's word on how far they are from those with all; "": none
  std::string problem = {};  // why it cannot be; then there is no plan
};
std::vector<InferenceRow> inference_table(const LoadedConfig& loaded, c10::Device device,
                                          const planner::SimulationOptions& options = {});
std::string inference_table_text(const std::string& name, const std::vector<InferenceRow>& rows,
                                 std::optional<int64_t> budget);
std::string inference_table_json(const std::vector<InferenceRow>& rows);

/// The bytes of a phase's peak are at_0 + each·count for counts from `first` to `last`.
struct LinearPiece {
  int64_t first = 1, last = 1, at_0 = 0, each = 0;
  int64_t bytes(int64_t count) const { return at_0 + each * count; }
  friend bool operator==(const LinearPiece&, const LinearPiece&) = default;
};
/// The pieces of `bytes_of` from 1 to `most`, by bisection: two counts are the ends of one where their middle
/// and their neighbours between them lie on the line through them. A count alone off a line that no bisection
/// meets would not be seen.
std::vector<LinearPiece> linear_pieces(int64_t most, const std::function<int64_t(int64_t)>& bytes_of);

struct PhasePieces {
  std::string phase;
  std::vector<LinearPiece> pieces;
};
/// Which phase is highest, and what made its peak.
struct LeadingPhase {
  std::string phase, by;  // "aten::mm in aggregator.global_blocks.4"
  int64_t first = 1, last = 1;
};
struct CountTable {
  std::vector<Plan> plans;            // of the counts asked for
  std::vector<PhasePieces> phases;    // in their order
  std::vector<LeadingPhase> leading;  // by count, up to the largest
  int64_t planned = 0;                // counts
  double seconds = 0;
};
/// `counts`: ascending, each above 0.
CountTable plan_counts(const LoadedConfig& loaded, c10::Device device, const std::vector<int64_t>& counts,
                       const planner::SimulationOptions& options = {});
std::string count_table_text(const std::string& name, const CountTable& table);
std::string count_table_json(const CountTable& table);

/// What is said of policies in such passes, each beside plans of the job with and without, and of their
/// bytes.
std::string inference_claims_text(const std::string& name, const LoadedConfig& loaded, c10::Device device,
                                  const planner::SimulationOptions& options = {});

/// The job as configured, or, where that does not stay within `budget` bytes, with the first of what
/// PolicyKind::tighter() of a policy says that does; as configured where none does.
LoadedConfig within_budget(const LoadedConfig& loaded, c10::Device device, int64_t budget,
                           const planner::SimulationOptions& options = {});

struct LargestCount {
  std::optional<Plan> largest, next;  // as LargestPlannedBatch
  int64_t planned = 0;
};
/// The largest count whose plan stays within `bytes` of a device, as configured or with what
/// PolicyKind::tighter() of a policy says, where more fit then.
LargestCount largest_planned_count(const LoadedConfig& loaded, c10::Device device, int64_t bytes,
                                   const planner::SimulationOptions& options = {});
/// Lines of what was set for a job: "set  policies.inference.head_chunk = 4, with which <why>".
std::string set_text(const LoadedConfig& asked, const LoadedConfig& taken, const std::string& why);
/// `notes`: of policies_without_use().
std::string notes_text(const std::vector<std::string>& notes);
/// A JSON object with "notes", with "set" what was set for the job, by key, and "rows", where there are such.
std::string inference_json(const std::string& object, const LoadedConfig& asked, const LoadedConfig& taken,
                           const std::vector<std::string>& notes, const std::vector<InferenceRow>& rows = {});
/// `asked`: the job before what was set for it.
std::string largest_count_text(const std::string& name, const LoadedConfig& asked, const LargestCount& found,
                               int64_t bytes);

}  // namespace dtk
