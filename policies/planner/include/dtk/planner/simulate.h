// Counts the bytes of a job by running its own code where nothing is computed.
//
//   const auto job = [](const EndOfPlan& end) { train(...); end(); };
//   const int64_t bytes = highest(simulate(c10::Device("cuda:0"), job).device).peak.bytes;
#pragma once
#include <c10/core/Device.h>
#include <dtk/planner/device_terms.h>
#include <dtk/planner/flops.h>
#include <dtk/planner/scratch.h>
#include <dtk/policies/memory_accounts.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace dtk::planner {

struct SimulationOptions {
  bool fold =
      true;  // leave out passes of a loop (policies::FoldableLoop) once two in a row ended with equal books
  DeviceTermOptions terms = {};
  const MeasuredScratch* scratch = nullptr;  // of CPU kernels, where it has been measured
  std::string scratch_source = "";           // what reports call that measurement
  bool note_calls = false;                   // for measure_scratch(): fills PlannedScratch::calls
};

/// What a job would take. Peaks are bytes asked for, without what a device adds to a storage.
struct SimulationResult {
  bool on_cpu = false;                      // not on a simulated device
  std::vector<policies::PhasePeak> device;  // of the training device, by phase
  std::vector<policies::PhasePeak> host;    // of CPU memory; for a job on the CPU, of what it keeps apart
  std::vector<DeviceTerm> terms;            // what a device adds to that; none on the CPU
  Reserved reserved;                        // of a device, at the end
  PlannedScratch scratch;                   // of CPU kernels
  std::map<std::string, int64_t> folded;    // passes left out, by loop
  // Of each optimizer step that a PolicySet or policies::step_done() ended, in order; the second is a steady
  // one.
  std::vector<Flops> steps;
  std::map<std::string, int64_t> recomputed;  // Flops::recomputed of a steady step, by module

  /// The number of a steady step; of the only one where there is one.
  size_t steady_number() const { return steps.size() > 1 ? 1 : 0; }
  /// Throws std::out_of_range if no step ended.
  const Flops& steady_step() const { return steps.at(steady_number()); }
  double seconds = 0;
};

/// All books of the memory ledger at one instant, by which a simulation knows that what it ran would only
/// repeat: live bytes by owner of the device, of CPU memory, and of what a job on the CPU keeps apart.
class LedgerSnapshot {
 public:
  LedgerSnapshot();
  /// Owners that came later and hold nothing make no difference.
  bool equal(const LedgerSnapshot& other) const;

 private:
  policies::MemorySums device_, cpu_, host_;
};

/// Ends the plan where the job calls it; what comes after is not counted.
using EndOfPlan = std::function<void()>;

/// Runs `job` on `device` ("cuda:0", simulated, or "cpu", shapes only). The first call decides the process:
/// it can use no real CUDA afterwards. Throws PlanError for what cannot be planned, for a job on "cuda:0"
/// that places nothing there, and in a process that asked LibTorch for CUDA before (at::manual_seed() does),
/// which calls register_simulated_devices() first of all; std::invalid_argument for another device, and what
/// the job throws. One at a time; the job may use threads of its own.
SimulationResult simulate(c10::Device device, const std::function<void(const EndOfPlan&)>& job,
                          const SimulationOptions& options = {});

}  // namespace dtk::planner
