// One run from its first step to its end: the loop, what is due between steps, and what it leaves.
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/checkpoint/store.h"
#include "toolkit/checkpoint/weights.h"
#include "toolkit/config/config_io.h"
#include "toolkit/data/held_out.h"
#include "toolkit/run/escalation.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/run/run.h"

namespace dtk {

/// What the process knew of its run before the run was built anew.
struct ProcessSoFar {
  bool resumed = false;           // the process resumed it
  int64_t step = 0, samples = 0;  // when the process began to train
  double seconds = 0;             // likewise
  double waited = 0;              // for data, by all runs that are gone
  int64_t skipped = 0, resumed_epoch = 0;
  double loss = 0;           // that was read last
  bool step_is_due = false;  // what follows the latest step has yet to be done
};

class TrainingRun {
 public:
  virtual ~TrainingRun() = default;
  virtual void load(const Checkpoint& checkpoint) = 0;
  /// `notes`: of the run folder, which is this run's by now. `plan`: of this run. `decision`: what was
  /// measured for it, or
  /// "". Nothing where it has to be built anew and go on as escalation() says.
  virtual std::optional<RunResult> train(bool resumed, const std::vector<std::string>& notes,
                                         const StartPlan& plan, const std::string& decision) = 0;
  /// Of a run that train() ended without a result.
  virtual const Escalation& escalation() const = 0;
  virtual ProcessSoFar so_far() const = 0;
  virtual void go_on_from(const ProcessSoFar& before) = 0;
  /// Of a run that came to its end, with the ledger on.
  virtual std::vector<PolicySaving> savings(const RunResult& result) = 0;
};

/// Builds the model. `given`: `loaded` as the user wrote it. All must outlive the run. Throws as Trainer.
std::unique_ptr<TrainingRun> build_run(const LoadedConfig& loaded, const RunConfig& given, c10::Device device,
                                       const RunData& data, const RunWorld& world,
                                       const std::optional<Weights>& initial, const MemoryMeters& meters);

}  // namespace dtk
