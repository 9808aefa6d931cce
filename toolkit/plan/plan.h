// dit-plan: the memory that a configured training job takes, from its configuration alone.
//
// Everything here is found by planning (planned_run.h): no figure comes from a formula. Nothing is printed.
#pragma once
#include <c10/core/Device.h>
#include <dtk/planner/device_terms.h>
#include <dtk/planner/explain.h>
#include <dtk/planner/flops.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/policy_kind.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/file_system.h"
#include "toolkit/plan/calibration.h"
#include "toolkit/report/memory_report.h"
#include "toolkit/report/placement.h"
#include "toolkit/report/plan_summary.h"

namespace dtk {

/// What has to hold a job: LibTorch's allocator, which memory.budget limits, or a whole device, whose context
/// lies beside. The same on the CPU.
enum class Capacity { allocator, device };

/// A precision that a measurement may choose when the training begins.
struct PossiblePrecision {
  policies::CpuPrecision precision;
  int64_t peak_bytes = 0;
  std::string phase;
};

/// Of two possible precisions, the one that a plan is of.
enum class PlannedPrecision {
  larger,        // any may be taken
  only_fitting,  // training takes it: the other exceeds memory.budget
  smaller,       // both exceed memory.budget
};

struct Plan {
  LoadedConfig loaded;                           // of what was planned: policies.precision.cpu is decided
  std::optional<int64_t> budget = {};            // memory.budget in bytes, which `loaded` is left without
  MemoryReport memory;                           // bytes asked for, by phase
  std::vector<planner::DeviceTerm> terms;        // what a device adds to those bytes; none on the CPU
  planner::Reserved reserved;                    // by LibTorch's allocator of a device
  planner::PlannedScratch scratch;               // of CPU kernels
  std::map<std::string, int64_t> folded;         // passes left out because they repeat, by loop
  std::string data;                              // which of its batches was planned; "": all are alike
  planner::Flops step;                           // of a steady optimizer step
  std::vector<policies::PolicyReport> policies;  // of the planned run
  policies::TrafficByCollective sent = {};       // of several ranks: by this one, in a step
  int64_t rank = 0, rank_with_most = 0;          // of several: this one; PlannedRun::rank_with_most
  double seconds = 0;                            // that planning took
  // Both, where the CPU's precision is not known before training.
  std::vector<PossiblePrecision> precisions;
  PlannedPrecision of_precision = PlannedPrecision::larger;
  std::optional<CheckpointPlacement> placement;  // that keep = "auto" was replaced by before it was planned

  /// The peak with the terms that take room of it.
  MemoryNeed need_in(Capacity room) const;
  int64_t bytes_in(Capacity room) const { return need_in(room).bytes(); }

  /// The phase with the highest peak among those whose peak holds something else than the highest of all,
  /// which is: holds other tensors. Nothing if there is no such phase.
  std::optional<policies::PhasePeak> runner_up() const;
};

/// The machine that plans has too little memory for that.
struct MachineTooSmall : Error {
  explicit MachineTooSmall(const std::string& what);
};

/// Plans `loaded` on a simulated cuda:0 or on a CPU of shapes, memory.budget left aside. With the CPU and
/// policies.precision.cpu = "probe" both outcomes are planned (PlannedPrecision). Throws ConfigError,
/// planner::PlanError and MachineTooSmall. `rank`: of several, the one that is planned.
Plan make_plan(LoadedConfig loaded, c10::Device device, const planner::SimulationOptions& options = {},
               int64_t rank = 0);
/// Of several ranks, the leader or the one that updates the most, whose peak is the higher.
Plan plan_highest_rank(const LoadedConfig& loaded, c10::Device device,
                       const planner::SimulationOptions& options = {});

/// Chooses for policies.checkpoint.keep = "auto" (report/placement.h), and makes `loaded` the job of the
/// choice. If nothing that was planned fits memory.budget, the choice is the lowest of that. A CPU precision
/// that is not known yet is taken to be fp32. memory.budget must be set, in bytes. Throws as make_plan().
CheckpointPlacement place_checkpoints(LoadedConfig& loaded, c10::Device device,
                                      const planner::SimulationOptions& options);

/// One of the combinations of policies; of the four built-in ones there are 16.
struct PlanRow {
  policies::PolicySwitches on;
  Plan plan;
};
/// All of them, the lowest peak first, equal ones in the order of their switches.
std::vector<PlanRow> plan_table(const LoadedConfig& loaded, c10::Device device,
                                const planner::SimulationOptions& options = {});

/// What one policy does for a job: the job with its switch in the other position.
struct PolicyEffect {
  std::string policy;
  bool on = false;               // in the job
  std::optional<Plan> switched;  // nothing where it cannot be switched
  std::string problem;           // why
};
std::vector<PolicyEffect> explain_policies(const Plan& plan, c10::Device device,
                                           const planner::SimulationOptions& options = {});

/// What each module of the model keeps for backward, and what policies.checkpoint makes of it: the job
/// without that policy, and with it as configured, or by default where it is off. `effects` are the
/// alternatives.
planner::Explanation explain_segments(const Plan& plan, const std::vector<PolicyEffect>& effects,
                                      c10::Device device, const planner::SimulationOptions& options = {});

struct LargestPlannedBatch {
  std::optional<Plan> largest;  // nothing: not even one batch of train.accumulate samples fits
  std::optional<Plan> next;     // the next larger one, which exceeds the budget; nothing: the data ended it
  int64_t planned = 0;          // candidates
  bool all_recomputed = false;  // policies.checkpoint.keep is "auto"
};
/// The largest data.batch whose plan stays within `bytes` of a device, at most all samples that data.samples
/// leaves to train on. Each candidate is planned; keep = "auto" as "block": what "auto" chooses for a
/// batch may be a little lower still. `measured`: with the scratch of its CPU kernels, which is measured for
/// each candidate that fits without it.
LargestPlannedBatch largest_planned_batch(const LoadedConfig& loaded, c10::Device device, int64_t bytes,
                                          const planner::SimulationOptions& options = {},
                                          bool measured = false);

/// Measures the scratch of the kernels that the plan of `loaded` for the CPU calls, with train.threads
/// threads, which must be set. Where the precision is open, of both; what exceeds `limit` bytes without
/// scratch is not run. `goes_on` as measure_scratch() asks it. Throws planner::PlanError where this machine
/// cannot make a call.
Calibration calibrate_cpu(LoadedConfig loaded, std::optional<int64_t> limit = std::nullopt,
                          const std::function<bool()>& goes_on = nullptr);
/// Measures what cuda:0 adds. Throws ConfigError without one.
Calibration calibrate_cuda();
/// `measured` must live as long as the result is used.
planner::SimulationOptions with_calibration(planner::SimulationOptions options, const Calibration& measured);

}  // namespace dtk
