// Public claims about policies, beside what a plan gives.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/io/file_system.h"
#include "toolkit/plan/plan.h"
#include "toolkit/report/memory_report.h"
#include "toolkit/train/model_family.h"

namespace dtk {

/// Peaks of a job without a policy and with it, in bytes, each with the phase that binds.
struct BothPeaks {
  int64_t tokens = 0;  // of a micro-batch, of a job that was made so large
  policies::PhasePeak without, with;
  /// By how much the policy lowers the peak, as a part of that without it; below 0: it raises it.
  double lowered_by() const;
};

struct CheckedClaim {
  Claim claim;
  std::string problem;                   // why the job cannot be planned both ways; then nothing below
  BothPeaks now = {};                    // of the job
  double more_flops = 0;                 // that a step computes with it, as a part of all without
  std::optional<BothPeaks> met_at = {};  // about where the claimed saving is met, planned there
  std::string never = {};                // why it is met nowhere
  std::optional<BothPeaks> sized = {};   // of the job with the claim's samples, beside its device_bytes
  std::string sized_problem = {};        // why it cannot be planned
  std::optional<TimedPairs> time = {};   // that a run measured of the policy
};

/// What a finished run measured of a policy's time, of `run`, its folder: by policy, from its memory.json.
/// Throws ConfigError that begins with "--report" where there is none, and FileError for a damaged one.
std::map<std::string, TimedPairs> measured_times(FileSystem& files, const std::string& run);

/// Each claim of the family of `loaded`, beside that job. Where a saving is met is looked for by planning
/// micro-batches of other sizes (ModelFamily::of_size()), up to 10 million tokens. `times`: of a run of it.
/// Throws planner::PlanError.
std::vector<CheckedClaim> check_claims(const LoadedConfig& loaded, c10::Device device,
                                       const planner::SimulationOptions& options = {},
                                       const std::map<std::string, TimedPairs>& times = {});

/// For a terminal of 80 columns. `name`: of the configuration.
std::string claims_text(const std::string& name, const std::vector<CheckedClaim>& checked);

/// An array of {"policy", "words", "source", "claimed": {"lowers_peak_by", "slower_by", "device_bytes",
/// "samples"}, "problem", "planned": peaks, "more_flops", "met_at": peaks with "tokens" or null, "never",
/// "sized": peaks or null, "sized_problem", "time": as in memory.json}; peaks are {"peak_bytes_without",
/// "phase_without", "peak_bytes_with", "phase_with", "lowered_by"}, all parts of 1.
nlohmann::ordered_json claims_json(const std::vector<CheckedClaim>& checked);

}  // namespace dtk
