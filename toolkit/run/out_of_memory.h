// What a user hears of a run that does not fit: what would help depends on what does not fit.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "toolkit/config/config.h"
#include "toolkit/core/errors.h"
#include "toolkit/run/memory_meters.h"

namespace dtk {

class Ranks;
class RunObserver;

/// Bytes on the training device that no batch size changes, all alive when a step's gradients are complete.
struct StateBytes {
  int64_t parameters = 0,
          gradients = 0;  // those with what lies beside them, such as tables, where it is known
  int64_t moments = 0;    // both of AdamW
  int64_t average = 0;    // of the EMA; 0 where it lives in host memory or is off
  int64_t total() const { return parameters + gradients + moments + average; }
};

/// By the plan of a run.
StateBytes state_bytes(const MemoryReport& plan);
/// Where there is none: by the number of parameters, each of them and of what belongs to it a float. Of
/// several ranks, what one has of each.
StateBytes state_bytes(const RunConfig& config, c10::Device device, int64_t ranks);

/// Trainable parameters.
int64_t trainable_parameters(const RunConfig& config);

/// Samples of a step, and the micro-batches that they are divided into.
struct StepSize {
  int64_t batch = 0, accumulate = 0;  // data.batch, train.accumulate
};

/// The most samples with which a run is planned to fit.
struct FewerSamples {
  bool is_known = false;  // all that was asked for was planned
  std::optional<StepSize> most = {};
};

/// What is known of a run that does not fit.
struct Shortage {
  bool resumed = false;                // the model is the checkpoint's
  bool in_build = false;               // it was refused before the first step
  bool by_budget = false;              // a higher memory.budget would end it
  int64_t ranks = 1;                   // that train
  bool divided_fits = false;           // with the weights divided too, by its plan
  std::optional<int64_t> limit = {};   // bytes, where it is known
  std::optional<int64_t> needed = {};  // bytes of the whole run, by its plan
  FewerSamples fewer = {};
  std::optional<int64_t> accumulate = {};  // the least that is, with the batch as it is
  std::optional<StateBytes> state = {};    // by its plan
  std::string not_known = {};              // what the plan counts as 0 bytes, as DeviceOverhead has it
};

/// Of a refusal while the run was built or trained. `plan`: of the run, where there is one. `ranks`: null for
/// one alone.
Shortage shortage_of(const c10::OutOfMemoryError& error, const RunConfig& config,
                     const std::optional<MemoryReport>& plan, bool in_build, bool resumed,
                     const Ranks* ranks);

/// What to do about it, by the cause: the state alone, or what a step adds to it.
std::string out_of_memory_advice(const RunConfig& config, c10::Device device, const Shortage& shortage);

/// Throws `error` where `observer` wants errors as they came, unless memory.budget asked for it: without one,
/// only the machine that plans is too small, which says nothing of the run.
void throw_if_bare(const c10::OutOfMemoryError& error, const RunConfig& config, const RunObserver& observer);

/// What was refused, where the ledger refused it.
std::optional<policies::RefusedAllocation> refused_by(const c10::OutOfMemoryError& error);

/// The peaks so far with what was refused; nothing without the ledger.
std::optional<MemoryReport> report_with_refusal(const MemoryMeters& meters,
                                                const c10::OutOfMemoryError& error);

/// The error that ends the run, after `write` has put down what is known; there may be no room for that
/// either, which is no error of its own.
Error out_of_memory(const c10::OutOfMemoryError& error, const std::string& advice,
                    const std::function<void()>& write);

}  // namespace dtk
