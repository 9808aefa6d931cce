// What a run leaves in its folder beside configuration and checkpoints: log.jsonl, tensorboard/, samples/,
// memory.json and report.html.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/core/clock.h"
#include "toolkit/data/data_source.h"
#include "toolkit/io/stored_tensor.h"
#include "toolkit/report/event_file.h"
#include "toolkit/report/history.h"
#include "toolkit/report/log.h"
#include "toolkit/report/memory_report.h"
#include "toolkit/report/page.h"
#include "toolkit/run/escalation.h"
#include "toolkit/run/memory_growth.h"
#include "toolkit/run/run.h"
#include "toolkit/run/slow_steps.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/validation.h"

namespace dtk {

/// What does not change while a run trains.
struct RunFacts {
  std::vector<ConfigRow> config;
  std::string data;  // one line
  std::string device, device_name;
  int64_t threads = 0;  // of each rank
  int64_t ranks = 1;
  int64_t parameters = 0;       // trainable
  double flops_per_sample = 0;  // of a training step; 0: not known
  std::vector<policies::PolicyReport> policies;
  int64_t samples = 0;   // trained on
  int64_t held_out = 0;  // for validation
  DataRemarks remarks = {};
  std::string unseen_classes = {};            // as RunResult says them
  std::vector<ConfigChange> changes = {};     // of the resume that is to be logged
  std::vector<std::string> class_names = {};  // by label; empty: numbers
  std::optional<MemoryReport> planned = {};
  std::string not_planned = {};  // what it counts as 0 bytes
};

/// Used by the thread that trains. Throws FileError.
class RunRecord {
 public:
  /// Opens the files of the folder, which must be this run's by now, and says that training begins at `step`:
  /// a start, a resume, or, nothing, that the process goes on. All that is given by reference must outlive
  /// this.
  RunRecord(const RunConfig& config, const RunFacts& facts, const RunWorld& world,
            std::optional<Logged> begin, int64_t step);

  const std::vector<LoggedEscalation>& escalations() const { return history_.escalations(); }

  /// Model FLOPs utilisation at this speed, where the device's peak is known.
  std::optional<double> mfu(double images_per_second) const;

  /// One reading of the training's scalars, without mfu: the line "step" of log.jsonl (report/log.h says what
  /// each is).
  void step(const LoggedStep& record, double wait_seconds, std::optional<int64_t> peak_bytes);
  /// That the `steps` steps up to `step` were slow: `time` each, where `median_seconds` is usual.
  void slow_step(int64_t step, int64_t steps, const StepTime& time, double median_seconds);
  /// That the process's memory beside the counted one grew until step `step`.
  void memory_grows(int64_t step, const MemoryGrowth::Growth& growth);
  /// That step `step` changed nothing; `samples`: the numbers of those it was of.
  void skipped(int64_t step, const std::string& samples);
  /// After `step` steps.
  void validation(int64_t step, const Validated& validated);
  /// Writes the report too, with the memory so far.
  void checkpoint(int64_t step, const std::filesystem::path& path, const std::optional<MemoryReport>& memory);
  /// The run's samples as a picture, or as safetensors where they are none (ModelFacts). Returns the file.
  std::filesystem::path samples(int64_t step, const std::vector<NamedTensor>& samples);
  /// The last event. `stopped`: the training was, not only the drawing of samples.
  void end(bool stopped, const RunResult& result);
  /// The last event of a run that did not fit, after `step` steps. Writes memory.json and the report with
  /// `memory`, the peaks so far.
  void out_of_memory(int64_t step, const std::optional<MemoryReport>& memory);
  /// That the step after `step` was refused memory, and what the run goes on with.
  void escalated(int64_t step, const Escalation& escalation, const c10::OutOfMemoryError& error);
  /// The last event of a run that `reason` ended, after `step` steps; writes as out_of_memory().
  void failed(int64_t step, const std::string& reason, const std::optional<MemoryReport>& memory);
  /// Writes memory.json, where there is one, and the report with it: again, once it says what the policies
  /// saved.
  void memory(const std::optional<MemoryReport>& memory);

  /// Where samples() will put those of `step`.
  std::filesystem::path samples_path(int64_t step) const;
  /// Makes the folder for samples.
  void prepare_samples();
  /// report.html, or "" with log.report = false.
  std::filesystem::path report_path() const;

 private:
  void log(Logged event, const RunLog::Fields& fields);
  void log_start(Logged begin, int64_t step);
  void write_report(const std::optional<MemoryReport>& memory);
  void add_samples(RunReport& report) const;

  const RunConfig& config_;
  const RunFacts facts_;
  const ModelFacts model_;
  FileSystem& files_;
  Clock& clock_;
  const std::filesystem::path folder_;
  const std::optional<double> peak_flops_;
  RunHistory history_;  // of all processes, before log_: it reads the file
  RunLog log_;
  std::optional<EventFile> events_;
  std::string state_;  // what the run came to, for the report
  int64_t last_step_ = 0;
  double last_wait_ = 0;
};

}  // namespace dtk
