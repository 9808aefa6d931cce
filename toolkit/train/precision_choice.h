// The one policy decision that a measurement makes: bf16 or fp32 on this CPU.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <string>

#include "toolkit/config/config_io.h"
#include "toolkit/core/clock.h"

namespace dtk {

/// Whether a measurement will decide: nobody chose, and the device is the CPU.
bool precision_is_open(const RunConfig& config, c10::Device device);

/// Replaces policies.precision.cpu = "probe" by what trial steps on the CPU say, where the default decides
/// and the device is the CPU; the configuration that a run saves then holds the outcome with its figures, and
/// running it again decides nothing anew. What does not fit into memory.budget is not taken. `resumed` is the
/// configuration of the checkpoint that the run continues, whose decision stands on any device, or null.
/// Returns a line to print, or "" if there was nothing to decide. `stop_requested`, asked before each step,
/// ends it with an Error, exit code 5. config.train.threads must be set and a
/// SavedTensorEngineGuard alive.
std::string decide_precision(LoadedConfig& loaded, c10::Device device, Clock& clock,
                             const LoadedConfig* resumed, const std::function<bool()>& stop_requested = {});

/// Settles an open precision without a trial step, where only plans of `taken` fit; `why` is saved with it.
/// Returns a line to print.
std::string take_planned_precision(LoadedConfig& loaded, policies::CpuPrecision taken,
                                   const std::string& why);

}  // namespace dtk
