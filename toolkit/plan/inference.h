// Plans of a job that infers and trains nothing: LoadedConfig::inferred says on how many frames, or whatever
// the family calls them (ModelFamily::inferred()). make_plan() plans one; here are what it is made of, and
// rows of policies left out.
#pragma once
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

/// "no backward pass: 0 bytes are kept ...", with the peaks of the job with recomputation and without.
std::string why_no_recomputing(const LoadedConfig& loaded, c10::Device device,
                               const planner::SimulationOptions& options = {});

/// The job as configured, then with what PolicyKind::tighter() of each policy says.
std::vector<LoadedConfig> tighter_choices(const LoadedConfig& loaded, c10::Device device);
/// The job as configured, or, where that does not stay within `budget` bytes, the first of
/// tighter_choices() that does; as configured where none does.
LoadedConfig within_budget(const LoadedConfig& loaded, c10::Device device, int64_t budget,
                           const planner::SimulationOptions& options = {});

}  // namespace dtk
