#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <dtk/policies/device_statistics.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/toolkit/checkpoint_store.h>
#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/image.h>
#include <dtk/toolkit/precision_choice.h>
#include <dtk/toolkit/run.h>
#include <dtk/toolkit/run_log.h>
#include <dtk/toolkit/schedule.h>
#include <dtk/toolkit/trainer.h>
#include <dtk/toolkit/training_files.h>

#include <cmath>
#include <cstdio>

namespace dtk {

using policies::PhaseScope;

namespace {

constexpr char kCheckpoints[] = "checkpoints";

std::string step_name(int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
}

// Installs what measures memory for the run's duration.
class MemoryMeters {
 public:
  MemoryMeters(const MemoryOptions& options, c10::Device device)
      : device_(device), budget_(options.budget ? options.budget->bytes : INT64_MAX) {
    if (!options.ledger) return;
    policies::cpu_accounts().reset_phases("build");
    allocator_.emplace();
    if (device.is_cpu() && options.budget) limit_.emplace(policies::cpu_accounts(), budget_);
    if (!device.is_cpu()) {
      statistics_.emplace(device);
      registration_.emplace(*statistics_);
    }
  }

  std::optional<MemoryReport> report() const {
    if (!allocator_) return std::nullopt;
    MemoryReport report;
    report.device = device_.str();
    const auto cpu = policies::cpu_accounts().phases();
    report.phases = statistics_ ? statistics_->phases() : cpu;
    if (statistics_) report.host = policies::highest(cpu);
    return report;
  }

  // On the CPU the ledger refuses the allocation itself; a device's allocator is asked after each step.
  void check_budget() const {
    if (!statistics_ || budget_ == INT64_MAX) return;
    const policies::PhasePeak peak = policies::highest(statistics_->phases());
    if (peak.peak.bytes <= budget_) return;
    C10_THROW_ERROR(OutOfMemoryError,
                    c10::str("memory budget of ", budget_, " bytes exceeded: ", peak.peak.bytes,
                             " bytes alive on ", device_, " in phase ", peak.name));
  }

  const policies::PhaseMeter& device() const {
    if (statistics_) return *statistics_;
    return policies::cpu_accounts();
  }

 private:
  const c10::Device device_;
  const int64_t budget_;
  std::optional<policies::CountingAllocatorGuard> allocator_;
  std::optional<policies::MemoryBudgetGuard> limit_;
  std::optional<policies::DeviceStatistics> statistics_;
  std::optional<policies::PhaseMeterRegistration> registration_;
};

bool is_checkpoint_of(const std::filesystem::path& run, const std::filesystem::path& checkpoint) {
  return std::filesystem::weakly_canonical(checkpoint).parent_path() ==
         std::filesystem::weakly_canonical(run / kCheckpoints);
}

// The run folder of a new run, or of the one that `resume` belongs to.
void open_run_folder(const LoadedConfig& loaded, const std::filesystem::path& resume, const RunWorld& world) {
  const std::filesystem::path out = loaded.config.train.out;
  const bool continued = !resume.empty() && is_checkpoint_of(out, resume);
  if (!continued && world.files.exists(out / "config.toml")) {
    const bool resumable = latest_checkpoint(world.files, out / kCheckpoints).has_value();
    throw ConfigError(out.string() + " already holds a run" +
                      (resumable ? "; continue it with --resume latest"
                                 : " that has no checkpoint; remove the folder if that run has ended") +
                      ", or name another folder: --set train.out=" + out.string() + "-2");
  }
  world.files.create_directories(out / kCheckpoints);
  world.files.create_directories(out / "samples");
  world.files.sync_directory(out);
  if (out.has_parent_path()) world.files.sync_directory(out.parent_path());  // out's own entry
  write_file_atomically(world.files, out / "config.toml", print_config(loaded));
}

// One run; its members are what the steps of the run share.
class Run {
 public:
  Run(const LoadedConfig& loaded, c10::Device device, std::shared_ptr<const DataSource> data,
      const RunWorld& world)
      : loaded_(loaded),
        config_(loaded.config),
        world_(world),
        out_(config_.train.out),
        meters_(config_.memory, device),
        trainer_(config_, device, data, world.clock),
        store_(world.files, out_ / kCheckpoints, config_.train.keep_checkpoints),
        log_(world.files, out_ / "log.jsonl"),
        device_(device) {}

  void resume(const std::filesystem::path& folder) {
    const Checkpoint checkpoint = open_checkpoint(world_.files, folder);
    load_training(checkpoint, trainer_);
    last_checkpoint_ = folder;
    world_.observer.message(
        "resumed from " + folder.string() + " at step " + std::to_string(trainer_.steps()) +
        (config_.train.seconds
             ? "; train.seconds is set, so the clock decides when the run ends and the result "
               "is not bit-equal to an uninterrupted run"
             : ""));
  }

  RunResult train(bool resumed) {
    const PhaseScope built("forward");  // what happens from here on is no longer the build
    announce(resumed ? "resume" : "start");
    const int64_t first_sample = trainer_.samples();
    const double first_second = trainer_.elapsed_seconds();
    mark_ = {trainer_.steps(), trainer_.samples(), first_second};
    const int64_t first_step = trainer_.steps();
    if (trainer_.done()) {
      world_.observer.message("nothing left to train at step " + std::to_string(first_step) +
                              "; to go on, raise train.steps or train.seconds");
      // The checkpoint, the samples and the memory report of a finished run stay what they are.
      if (resumed) return nothing_trained();
    }
    RunResult result;
    while (!trainer_.done()) {
      if (world_.stop_requested && world_.stop_requested()) {
        result.stopped = true;
        break;
      }
      trainer_.step();
      meters_.check_budget();
      const int64_t step = trainer_.steps();
      if (step % config_.train.log_every == 0) read_and_log();
      const int64_t every = config_.train.checkpoint_every;
      if (every > 0 && step % every == 0 && !trainer_.done()) save();
    }
    if (trainer_.samples() != mark_.samples) read_and_log();
    const double seconds = trainer_.elapsed_seconds() - first_second;
    result.step = trainer_.steps();
    result.trained_steps = result.step - first_step;
    result.loss = scalars_.loss;
    if (seconds > 0) {
      result.images_per_second = static_cast<double>(trainer_.samples() - first_sample) / seconds;
      result.exposed_wait_fraction = trainer_.exposed_wait_seconds() / seconds;
    }
    finish(result, seconds);
    return result;
  }

 private:
  struct Mark {
    int64_t step = 0;
    int64_t samples = 0;
    double seconds = 0;
  };

  RunResult nothing_trained() const {
    RunResult result;
    result.step = trainer_.steps();
    result.checkpoint = last_checkpoint_;
    return result;
  }

  void announce(const char* event) {
    log_.write(event, {{"step", trainer_.steps()},
                       {"device", device_.str()},
                       {"threads", *config_.train.threads},
                       {"parameters", trainer_.parameter_count()}});
    for (const auto& report : trainer_.policies().reports()) {
      world_.observer.message("policy " + report.policy + ": " + (report.active ? "on" : "off") + ", " +
                              report.reason +
                              (report.active ? " (" + readable_bytes(report.device_bytes) + ")" : ""));
    }
  }

  [[noreturn]] void stop_at_non_finite() const {
    const int64_t last = trainer_.steps();
    const std::string steps = mark_.step + 1 < last ? "one of the steps " + std::to_string(mark_.step + 1) +
                                                          " to " + std::to_string(last)
                                                    : "step " + std::to_string(last);
    throw Error(ExitCode::failure,
                "the loss or a gradient became infinite or NaN in " + steps +
                    "; the weights were not changed by it. Last good checkpoint: " +
                    (last_checkpoint_.empty() ? "none" : last_checkpoint_.string()) +
                    ". Try a lower optimizer.lr, a longer schedule.warmup or a smaller optimizer.clip");
  }

  void read_and_log() {
    scalars_ = trainer_.read_scalars_sync();
    if (!scalars_.finite) stop_at_non_finite();
    Progress progress;
    progress.step = trainer_.steps();
    progress.elapsed_seconds = trainer_.elapsed_seconds();
    progress.fraction = run_progress(config_.train, progress.step, progress.elapsed_seconds);
    progress.loss = scalars_.loss;
    const double interval = progress.elapsed_seconds - mark_.seconds;
    if (interval > 0) {
      progress.images_per_second = static_cast<double>(trainer_.samples() - mark_.samples) / interval;
    }
    if (progress.fraction > 0) {
      progress.remaining_seconds = progress.elapsed_seconds * (1.0 / progress.fraction - 1.0);
    }
    const auto memory = meters_.report();
    progress.peak_bytes = memory ? memory->peak().peak.bytes : 0;
    log_.write("step", {{"step", progress.step},
                        {"loss", scalars_.loss},
                        {"lr", trainer_.learning_rate()},
                        {"gradient_norm", scalars_.gradient_norm},
                        {"images_per_second", progress.images_per_second},
                        {"peak_bytes", progress.peak_bytes},
                        {"seconds", progress.elapsed_seconds},
                        {"wait_seconds", trainer_.exposed_wait_seconds()}});
    world_.observer.progress(progress);
    mark_ = {trainer_.steps(), trainer_.samples(), progress.elapsed_seconds};
  }

  // Only finite states are saved: the scalars are read first.
  void save() {
    if (trainer_.samples() != mark_.samples) read_and_log();
    PhaseScope phase("save");
    last_checkpoint_ =
        save_training(store_, trainer_, print_config(loaded_), static_cast<int>(*config_.train.threads));
    log_.write("checkpoint", {{"step", trainer_.steps()}, {"path", last_checkpoint_.string()}});
  }

  void finish(RunResult& result, double seconds) {
    save();
    result.checkpoint = last_checkpoint_;
    if (!result.stopped && config_.sample.per_class > 0) result.samples = sample_grid();
    log_.write(
        result.stopped ? "stopped" : "end",
        {{"step", result.step}, {"seconds", seconds}, {"images_per_second", result.images_per_second}});
    result.memory = meters_.report();
    if (!result.memory) return;
    write_file_atomically(world_.files, out_ / "memory.json", memory_json(*result.memory));
    if (!result.stopped) result.savings = measure_savings(trainer_, config_, meters_.device());
  }

  std::filesystem::path sample_grid() {
    const PhaseScope phase("sample");
    if (config_.model.channels != 1 && config_.model.channels != 3) {
      world_.observer.message("no sample grid: samples of " + std::to_string(config_.model.channels) +
                              " channels are not images; use dit-sample --out FILE.safetensors");
      return {};
    }
    world_.observer.message("sampling " + std::to_string(config_.model.classes * config_.sample.per_class) +
                            " images in " + std::to_string(config_.sample.steps) + " steps");
    const Image image =
        image_grid(trainer_.sample_grid(), config_.sample.per_class, /*padding=*/2, /*scale=*/2);
    const std::filesystem::path path = out_ / "samples" / (step_name(trainer_.steps()) + ".png");
    write_file_atomically(world_.files, path, encode_png(image));
    return path;
  }

  const LoadedConfig& loaded_;
  const RunConfig& config_;
  const RunWorld& world_;
  const std::filesystem::path out_;
  MemoryMeters meters_;  // before the trainer: counts its tensors from the first
  Trainer trainer_;
  CheckpointStore store_;
  RunLog log_;
  const c10::Device device_;
  std::filesystem::path last_checkpoint_;
  StepScalars scalars_;
  Mark mark_;  // when the scalars were last read
};

// Of a checkpoint folder of the store; "step-00000020", or "step-00000020.replaced" after a crash.
int64_t step_in_name(const std::filesystem::path& checkpoint) {
  return std::stoll(checkpoint.filename().string().substr(sizeof "step-" - 1));
}

// A run goes on from the end of its folder: continued from an older checkpoint, the newer ones of the
// abandoned branch would still be "latest" and outlive what is trained now.
void check_branch(const LoadedConfig& loaded, const Checkpoint& checkpoint, const RunWorld& world) {
  const std::filesystem::path out = loaded.config.train.out;
  const auto latest = latest_checkpoint(world.files, out / kCheckpoints);
  // The newest one is not opened: that it is damaged may be why an older one is wanted.
  if (!latest || step_in_name(*latest) <= checkpoint.step()) return;
  throw ConfigError("--resume " + checkpoint.folder().string() + ": " + out.string() + " holds the newer " +
                    latest->string() +
                    "; continue that with --resume latest, or start a branch in another folder: " +
                    "--set train.out=" + out.string() + "-2");
}

void check_resume(const LoadedConfig& loaded, const std::filesystem::path& folder, const RunWorld& world) {
  const Checkpoint checkpoint = open_checkpoint(world.files, folder);
  check_branch(loaded, checkpoint, world);
  const std::string config_file = (folder / "config.toml").string();
  const RunConfig written = parse_config(checkpoint.text("config.toml"), config_file, {}).config;
  const std::string problem = resume_problem(folder.string(), config_file, written, loaded.config);
  if (!problem.empty()) throw ConfigError(problem);
  const int threads = threads_of(checkpoint);
  if (threads != *loaded.config.train.threads && !loaded.config.train.allow_thread_change) {
    throw ConfigError(folder.string() + " was written with train.threads = " + std::to_string(threads) +
                      ", this run has " + std::to_string(*loaded.config.train.threads) +
                      ", and results depend on it; use --set train.threads=" + std::to_string(threads) +
                      ", or accept other rounding with --set train.allow_thread_change=true");
  }
}

// `given` with everything settled that it leaves to a measurement.
LoadedConfig decided(const LoadedConfig& given, c10::Device device, const std::filesystem::path& resume,
                     const RunWorld& world) {
  LoadedConfig loaded = given;
  std::optional<RunConfig> written;
  if (!resume.empty()) {
    written = parse_config(open_checkpoint(world.files, resume).text("config.toml"), resume.string(), {}).config;
  }
  const std::string decision = decide_precision(loaded, device, world.clock, written ? &*written : nullptr);
  if (!decision.empty()) world.observer.message(decision);
  return loaded;
}

}  // namespace

std::optional<std::filesystem::path> checkpoint_in(FileSystem& files, const std::filesystem::path& folder) {
  if (files.exists(folder / "manifest.json")) return folder;
  return latest_checkpoint(files, folder / kCheckpoints);
}

std::filesystem::path find_checkpoint(FileSystem& files, const std::string& what, const std::string& out) {
  const std::filesystem::path folder = what == "latest" ? out : what;
  const auto found = checkpoint_in(files, folder);
  if (!found) {
    throw ConfigError("--resume " + what + ": no complete checkpoint in " + (folder / kCheckpoints).string() +
                      "; name a run folder or a checkpoint folder, or start anew without --resume");
  }
  return *found;
}

void resolve_threads(LoadedConfig& loaded) {
  if (loaded.config.train.threads) return;
  loaded.config.train.threads = at::get_num_threads();
  loaded.origins["train.threads"] = "default: the cores of this machine";
}

RunResult run_training(const LoadedConfig& given, c10::Device device, const std::filesystem::path& resume,
                       std::shared_ptr<const DataSource> data, const RunWorld& world) {
  const policies::ThreadCountGuard threads(static_cast<int>(*given.config.train.threads));
  const policies::SavedTensorEngineGuard engine;  // without it no policy that keeps or drops tensors works
  const LoadedConfig loaded = decided(given, device, resume, world);
  if (!resume.empty()) check_resume(loaded, resume, world);
  open_run_folder(loaded, resume, world);
  Run run(loaded, device, std::move(data), world);
  if (!resume.empty()) run.resume(resume);
  return run.train(!resume.empty());
}

}  // namespace dtk
