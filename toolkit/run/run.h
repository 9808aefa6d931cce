// One training run from a configuration to a finished run folder:
//
//   <train.out>/config.toml      the effective configuration with the origin of each value
//   <train.out>/data.json        what the data are known by (data/identity.h)
//   <train.out>/log.jsonl        one JSON object a line (log.h)
//   <train.out>/checkpoints/     step-00001234/ ...
//   <train.out>/tensorboard/     event files (event_file.h); not with log.tensorboard = false
//   <train.out>/samples/         step-00001234.png, .safetensors where samples are not images
//   <train.out>/memory.json      peak memory by phase and category (memory_report.h)
//   <train.out>/report.html      all of it on one page (page.h); not with log.report = false
//   <train.out>/lock             locked while a process trains into the folder
#pragma once
#include <c10/core/Device.h>
#include <dtk/policies/collectives.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/core/clock.h"
#include "toolkit/data/held_out.h"
#include "toolkit/distributed/ranks.h"
#include "toolkit/io/file_system.h"
#include "toolkit/report/memory_report.h"
#include "toolkit/report/placement.h"
#include "toolkit/report/plan_summary.h"
#include "toolkit/train/policy_savings.h"

namespace dtk {

/// Where a run is, for a progress display.
struct Progress {
  int64_t step = 0;
  double fraction = 0;  // of the run, in [0, 1]
  double loss = 0;
  double images_per_second = 0;
  std::string sample_name = {};       // what samples are called: "images", "frames"
  std::optional<int64_t> peak_bytes;  // absent without memory.ledger
  double elapsed_seconds = 0, remaining_seconds = 0;
};

struct RunResult;

/// Told what happens; prints or does not.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void message(const std::string& text) = 0;
  /// What only who asks for it wants to hear; the run folder has it too.
  virtual void detail(const std::string& text) { message(text); }
  virtual void progress(const Progress& progress) = 0;
  /// What takes its time beside the training, such as "sampling": `done` of its `all` parts are.
  virtual void working(const std::string& what, int64_t done, int64_t all) = 0;
  /// All that the run leaves is in its folder. What comes after is the measuring of `savings`, which whoever
  /// does not want to wait may interrupt.
  virtual void finished(const RunResult&) {}
  /// Whether errors leave the run as they came: not as messages with advice, and not into its record.
  virtual bool wants_bare_errors() const { return false; }
};

/// The world of a run. All must outlive it.
struct RunWorld {
  FileSystem& files;
  Clock& clock;
  RunObserver& observer;
  std::function<bool()> stop_requested;  // asked between steps of the training and of the sampler
  // Asked before data are opened and before anything is measured, and for what a run goes on with that was
  // refused memory; empty: the run is not planned, and keep = "auto" is refused.
  std::function<StartPlan(const LoadedConfig&, c10::Device)> plan = {};
  // Seconds since any fixed instant, by which steps are found slow; empty: nobody looks.
  std::function<double()> watch = {};
  // Memory that the process holds, by which it is found growing; empty: nobody looks.
  std::function<std::optional<int64_t>()> resident = {};
  std::filesystem::path trace = {};  // file for a timeline of some steps (trace.h); "": none
  bool takes_over = false;           // a run in the folder that has no checkpoint yet gives way to this one
  // That train together. Each has a world of its own; that of a follower says nothing
  // (follower.h).
  Ranks* ranks = nullptr;
  FileSystem* shared_files = nullptr;  // where a follower writes its share of checkpoints; null: `files`
  FileSystem& checkpoint_files() const { return shared_files == nullptr ? files : *shared_files; }
};

struct RunResult {
  bool stopped = false;       // by request, with a complete checkpoint
  std::string next_step;      // when stopped or out of memory: how to get what is missing
  std::string out_of_memory;  // the samples did not fit; the training is complete
  int64_t step = 0;
  int64_t trained_steps = 0;                  // of this process; with 0 there is no loss and no speed
  double loss = 0;                            // mean over the last log interval
  std::vector<LoggedEscalation> escalations;  // of all processes of the run
  int64_t skipped_steps = 0;                  // of the trained ones, that changed nothing
  int64_t warmup = 0;                         // steps, where the run ended before the last of them
  double images_per_second = 0;               // of this process, training time only
  std::string sample_name = {};               // what they are called
  double exposed_wait_fraction = 0;           // of the training time: waiting for the loader
  int64_t ranks = 1;                          // that trained it
  policies::TrafficByCollective sent;         // by each of several, in a step
  double rank_wait_fraction = 0;              // of the training time: waiting for them
  double seconds = 0;                         // of training, of this process
  double run_seconds = 0;                     // of all processes of the run, as train.seconds counts
  std::optional<double> mfu;                  // model FLOPs utilisation, where the device's peak is known
  std::optional<double> validation_loss;      // after the last step; absent without held-out samples
  int64_t held_out = 0;                       // samples that it is of
  bool synthetic = false;                     // the data were made up
  std::string unseen_classes;                 // "class 4 is never learnt", as the start said; or ""
  std::filesystem::path checkpoint;
  std::filesystem::path samples;  // the last ones; empty if none were made
  std::filesystem::path report;   // empty with log.report = false
  std::optional<MemoryReport> memory;
  std::optional<MemoryReport> planned;  // of the run as it ended, before it began or went on with less memory
  std::vector<PolicySaving> savings;    // of a run that came to its end, with the ledger on
  std::vector<policies::PolicyReport> policies;
};

/// Opens the data of a run; called once nothing else speaks against it. `before`: what the data were of the
/// checkpoint that the run goes on from, as ModelFamily::open_data() takes it, as `progress`.
using OpenData = std::function<RunData(const DataIdentity* before, const OpeningProgress& progress)>;

/// Trains, saves, samples and reports. `resume`: a checkpoint to continue from; empty: a new run, whose
/// folder must not hold a run yet. config.train.threads must be set (resolve_threads). All that can be
/// refused is refused before the folder is touched and before the observer hears the configuration. Throws
/// Error.
RunResult run_training(const LoadedConfig& loaded, c10::Device device, const std::filesystem::path& resume,
                       const OpenData& open, const RunWorld& world);

/// Sets train.threads if it is absent: to those of this process, of which `processes` share the machine.
void resolve_threads(LoadedConfig& loaded, int64_t processes = 1);

}  // namespace dtk
