#include "toolkit/run/training_run.h"

#include <c10/util/Exception.h>
#include <dtk/policies/advice.h>
#include <dtk/policies/collectives.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <utility>

#include "toolkit/checkpoint/find.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/core/text.h"
#include "toolkit/device/device.h"
#include "toolkit/run/messages.h"
#include "toolkit/run/out_of_memory.h"
#include "toolkit/run/record.h"
#include "toolkit/run/run_ranks.h"
#include "toolkit/run/run_samples.h"
#include "toolkit/run/start.h"
#include "toolkit/run/watch.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/save_load.h"
#include "toolkit/train/trainer.h"
#include "toolkit/train/validation.h"

namespace dtk {

using policies::PhaseScope;

namespace {

// One run; its members are what the steps of the run share.
class Run final : public TrainingRun {
 public:
  Run(const LoadedConfig& loaded, const RunConfig& given, c10::Device device, const RunData& data,
      const RunWorld& world, const std::optional<Weights>& initial, const MemoryMeters& meters)
      : loaded_(loaded),
        given_(given),
        config_(loaded.config),
        model_(facts_of(loaded.config)),
        world_(world),
        out_(config_.train.out),
        meters_(meters),
        data_(data),
        trainer_(
            config_, device, data.split.training, world.clock,
            [&](const TrainableModel& model, const policies::Shards& shards) {
              if (initial) load_weights(*initial, model, &shards);
            },
            world.ranks),
        ranks_(world, trainer_),
        watch_(config_, device, world, trainer_),
        samples_(config_, model_, data, world, ranks_, meters, trainer_),
        store_(world.checkpoint_files(), out_ / checkpoints_folder, config_.train.keep_checkpoints,
               world.ranks),
        device_(device) {
    if (initial && trainer_.model().is_partly_frozen()) trainer_.set_base(base_of(world.files, *initial));
    if (data.split.held_out) validation_.emplace(config_, data.split.held_out);
  }

  void load(const Checkpoint& checkpoint) override {
    load_training(checkpoint, trainer_);
    last_checkpoint_ = checkpoint.folder();
  }

  std::optional<RunResult> train(bool resumed, const std::vector<std::string>& notes, const StartPlan& plan,
                                 const std::string& decision) override {
    const PhaseScope built("forward");  // what happens from here on is no longer the build
    announce(resumed, notes, plan, decision);
    plan_ = plan;
    try {
      return train_to_end(resumed);
    } catch (const c10::OutOfMemoryError& error) {
      give_up(error,
              last_checkpoint_text() +
                  out_of_memory_advice(config_, device_,
                                       shortage_of(error, config_, plan.memory,
                                                   /*in_build=*/false, process_->resumed, world_.ranks)));
    } catch (const Error& error) {
      // What did not fit has been recorded, with more.
      if (error.code != ExitCode::memory) record_failure(error.what());
      throw;
    } catch (const std::exception& error) {
      record_failure(first_line(error.what()));
      throw;
    }
  }

  const Escalation& escalation() const override { return *escalation_; }
  ProcessSoFar so_far() const override {
    ProcessSoFar before = *process_;
    before.waited += trainer_.exposed_wait_seconds();
    before.skipped = skipped_steps_;
    before.resumed_epoch = trainer_.resumed_epoch();
    before.loss = scalars_.loss;
    before.step_is_due = !taken_back_;
    return before;
  }
  void go_on_from(const ProcessSoFar& before) override {
    process_ = before;
    skipped_steps_ = before.skipped;
    trainer_.set_resumed_epoch(before.resumed_epoch);
    scalars_.loss = before.loss;
  }

  std::vector<PolicySaving> savings(const RunResult& result) override {
    if (result.stopped || !result.memory || !result.out_of_memory.empty() || world_.ranks != nullptr)
      return {};
    MemoryReport report = *result.memory;
    const auto seconds = [&] { return world_.clock.seconds(); };
    report.policies =
        measure_savings(trainer_, config_, meters_.device(),
                        {[] { return available_bytes(); }, world_.stop_requested, seconds, result.seconds});
    try {
      record_->memory(report);
    } catch (const FileError& error) {  // the one without savings is still there
      world_.observer.message("memory.json or report.html stays without what the policies saved: " +
                              std::string(error.what()));
    }
    return report.policies;
  }

 private:
  struct Mark {
    int64_t step = 0, samples = 0;
    double seconds = 0;
  };

  std::optional<RunResult> train_to_end(bool resumed) {
    agree();
    mark_ = {trainer_.steps(), trainer_.samples(), trainer_.elapsed_seconds()};
    const bool goes_on = process_.has_value();
    if (!goes_on) {
      process_.emplace();
      process_->resumed = resumed;
      process_->step = mark_.step, process_->samples = mark_.samples, process_->seconds = mark_.seconds;
    }
    const int64_t first_step = process_->step;
    const double first_second = process_->seconds;
    if (trainer_.done() && !goes_on) {
      world_.observer.message(
          fmt::format("nothing left to train at step {}; to go on, raise what ended it, "
                      "train.steps, train.epochs or train.seconds",
                      first_step));
      // The checkpoint, the samples and the memory report of a finished run stay what they are.
      if (resumed) return nothing_trained();
    }
    RunResult result;
    result.synthetic = data_.remarks.synthetic;
    result.unseen_classes = unseen_classes(data_.classes);
    if (process_->step_is_due) do_what_is_due(result);
    while (!trainer_.done()) {
      if (world_.ranks == nullptr ? ranks_.stop_requested() : is_to_stop_) {
        result.stopped = true;
        break;
      }
      watch_.begin_step();
      if (!step()) {
        if (escalation_) return std::nullopt;
        continue;  // to the stop that was requested meanwhile
      }
      agree();
      const bool is_logged = is_log_step(trainer_.steps(), config_.train.log_every);
      if (is_logged) read_and_log();
      watch_.end_step(is_logged, *record_);
      do_what_is_due(result);
    }
    read_if_behind();
    watch_.end();
    const double seconds = trainer_.elapsed_seconds() - first_second;
    if (!result.stopped && validated_step_ != trainer_.steps()) validate(result);
    result.step = trainer_.steps();
    result.trained_steps = result.step - first_step;
    result.loss = scalars_.loss;
    result.skipped_steps = skipped_steps_;
    const ScheduleOptions& schedule = config_.schedule;
    if (schedule.kind != ScheduleKind::epochs && trainer_.steps() < schedule.warmup)
      result.warmup = schedule.warmup;
    result.sample_name = model_.sample_name;
    result.seconds = seconds;
    result.run_seconds = first_second + seconds;
    if (seconds > 0) {
      result.images_per_second = static_cast<double>(trainer_.samples() - process_->samples) / seconds;
      result.exposed_wait_fraction = (process_->waited + trainer_.exposed_wait_seconds()) / seconds;
      result.mfu = record_->mfu(result.images_per_second);
    }
    result.policies = trainer_.policies().reports();
    result.sent = trainer_.sent_in_step();
    if (world_.ranks != nullptr) result.ranks = world_.ranks->size();
    if (seconds > 0) result.rank_wait_fraction = trainer_.waited_for_ranks() / seconds;
    finish(result);
    return result;
  }

  // Between two steps: of several ranks, each knows what was asked of any, and the leader's time is
  // everybody's.
  void agree() {
    if (world_.ranks == nullptr) return;
    const auto said =
        ranks_.all_say({ranks_.stop_requested() ? 1.0 : 0.0, trainer_.own_seconds()}, "before the next step");
    is_to_stop_ = std::any_of(said.begin(), said.end(), [](const auto& one) { return one[0] != 0; });
    trainer_.agree_on_seconds(said.front()[1]);
  }

  void do_what_is_due(RunResult& result) {
    if (is_due(config_.train.validate_every)) validate(result);
    if (trainer_.done()) return;
    if (is_due(config_.train.checkpoint_every)) save();
    if (is_due(config_.train.sample_every)) sample_on_the_way();
  }

  // False where the step was refused memory: the run is saved with a choice that takes less, escalation_, or,
  // without one, a stop is requested.
  bool step() try {
    trainer_.step(/*measured=*/is_read_at(trainer_.steps() + 1));
    meters_.check_budget();
    return true;
  } catch (const c10::OutOfMemoryError& error) {
    if (config_.memory.on_out_of_memory == OnOutOfMemory::stop || world_.observer.wants_bare_errors()) throw;
    const Trainer::ClockStop clock(trainer_);  // plans are no training
    taken_back_ = trainer_.take_back_step();
    watch_.forget_step();
    std::optional<Escalation> lowest;
    escalation_ = next_choice(loaded_, given_, device_, trainer_.steps(), error, plan_, world_, lowest);
    if (ranks_.stop_requested()) {
      escalation_.reset();
      return false;
    }
    if (!escalation_ && lowest) world_.observer.message(no_choice_text(*lowest, trainer_.steps()));
    if (!escalation_) throw;
    save_escalation(error);
    return false;
  }

  void save_escalation(const c10::OutOfMemoryError& error) try {
    read_if_behind();
    escalation_->saved_as = save_training(store_, trainer_, escalation_->loaded, threads(), data_.identity);
    world_.observer.message(escalation_text(*escalation_, trainer_.steps(), taken_back_, error));
    record_->escalated(trainer_.steps(), *escalation_, error);
    record_->checkpoint(trainer_.steps(), escalation_->saved_as, meters_.report());
  } catch (const FileError& problem) {
    throw FileError(
        fmt::format("{}; it was to be saved that the run goes on with {}, as a step was refused memory: {}",
                    problem.what(), escalation_->chosen, first_line(error.what_without_backtrace())));
  }

  int threads() const { return static_cast<int>(*config_.train.threads); }

  bool is_due(int64_t every) const { return is_due(every, trainer_.steps()); }
  static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }
  // Whether the scalars of this step are read once it is done, as far as the configuration tells.
  bool is_read_at(int64_t step) const {
    const TrainOptions& train = config_.train;
    return is_log_step(step, train.log_every) || is_due(train.validate_every, step) ||
           is_due(train.checkpoint_every, step) || is_due(train.sample_every, step) || step == train.steps;
  }

  RunResult nothing_trained() const {
    RunResult result;
    result.step = trainer_.steps();
    result.checkpoint = last_checkpoint_;
    return result;
  }

  void announce(bool resumed, const std::vector<std::string>& notes, const StartPlan& plan,
                const std::string& decision) {
    RunFacts facts = run_facts(loaded_, device_, data_, plan);
    facts.parameters = trainer_.parameter_count();
    facts.policies = trainer_.policies().reports();
    const bool goes_on = process_.has_value();  // all this was said before
    if (resumed && !goes_on) {
      for (const ConfigChange& change : loaded_.history)
        if (change.step == trainer_.steps()) facts.changes.push_back(change);
    }
    const Logged begin = resumed ? Logged::resume : Logged::start;
    record_.emplace(config_, facts, world_, goes_on ? std::nullopt : std::optional(begin), trainer_.steps());
    if (!goes_on) {
      world_.observer.detail(print_config(loaded_));
      world_.observer.message(training_line(model_, facts, out_));
      if (world_.ranks != nullptr) {
        const int64_t micro_batches = config_.train.accumulate, ranks = world_.ranks->size();
        world_.observer.message(fmt::format("{} ranks, each runs {} of the {} micro-batches of a step", ranks,
                                            micro_batches / ranks, micro_batches));
      }
      for (const std::string& line : data_lines(data_, model_)) world_.observer.message(line);
      world_.observer.detail("device: " + device_.str());
      for (const std::string& note : loaded_.notes) world_.observer.message(note);
    }
    for (const std::string& note : notes) world_.observer.message(note);
    if (!decision.empty()) world_.observer.message(decision);
    if (resumed && !goes_on) {
      world_.observer.message(
          resumed_line(last_checkpoint_, trainer_.steps(), config_.train.seconds.has_value()));
      if (!trainer_.done()) {
        for (const ConfigChange& change : facts.changes)
          world_.observer.message("from here on: " + change.text);
      }
    }
    for (const auto& report : trainer_.policies().reports()) {
      const std::string line = policy_line(report);
      report.active ? world_.observer.message(line) : world_.observer.detail(line);
    }
  }

  void tell_of_skipped() {
    for (const SkippedStep& skipped : scalars_.skipped) {
      const std::string samples = first_of(trainer_.samples_of(skipped));
      record_->skipped(skipped.step, samples);
      world_.observer.message(skipped_text(skipped.step, samples));
    }
    skipped_steps_ += std::ssize(scalars_.skipped);
    if (scalars_.skipped_in_a_row <= config_.train.max_skipped) return;
    throw Error(ExitCode::failure,
                too_many_skipped_text(scalars_.skipped_in_a_row, config_.train, last_checkpoint_));
  }

  // Unless nothing was trained since the scalars were last read.
  void read_if_behind() {
    if (trainer_.samples() != mark_.samples) read_and_log();
  }

  void read_and_log() {
    {
      const Watch::Waits for_device(watch_, &StepTime::device);
      scalars_ = trainer_.read_scalars_sync();
    }
    if (!scalars_.finite) {
      throw Error(ExitCode::failure,
                  non_finite_text(mark_.step + 1, trainer_.steps(), config_.optimizer, last_checkpoint_));
    }
    if (!scalars_.skipped.empty()) tell_of_skipped();
    if (scalars_.weightless_steps > 0)
      world_.observer.message(weightless_text(scalars_.weightless_steps, trainer_.steps()));
    // A line has the loss and the norm of steps that counted.
    if (std::ssize(scalars_.skipped) == trainer_.steps() - mark_.step) {
      mark_ = {trainer_.steps(), trainer_.samples(), trainer_.elapsed_seconds()};
      return;
    }
    Progress progress;
    progress.sample_name = model_.sample_name;
    progress.step = trainer_.steps();
    progress.elapsed_seconds = trainer_.elapsed_seconds();
    progress.fraction = trainer_.progress();
    progress.loss = scalars_.loss;
    const double interval = progress.elapsed_seconds - mark_.seconds;
    if (interval > 0)
      progress.images_per_second = static_cast<double>(trainer_.samples() - mark_.samples) / interval;
    if (progress.fraction > 0)
      progress.remaining_seconds = progress.elapsed_seconds * (1.0 / progress.fraction - 1.0);
    if (const auto report = meters_.report()) progress.peak_bytes = report->peak().peak.bytes;
    const Watch::Memory memory = watch_.look_at_memory(*record_);
    {
      const Watch::Waits for_disk(watch_, &StepTime::disk);
      record_->step({.step = progress.step,
                     .loss = scalars_.loss,
                     .learning_rate = trainer_.learning_rate(),
                     .gradient_norm = scalars_.gradient_norm,
                     .images_per_second = progress.images_per_second,
                     .seconds = progress.elapsed_seconds,
                     .mfu = {},
                     .process_bytes = memory.process,
                     .counted_bytes = memory.counted},
                    trainer_.exposed_wait_seconds(), progress.peak_bytes);
    }
    world_.observer.progress(progress);
    mark_ = {trainer_.steps(), trainer_.samples(), progress.elapsed_seconds};
  }

  // Only finite weights are looked at: the scalars are read first.
  void validate(RunResult& result) {
    if (!validation_) return;
    read_if_behind();
    validated_step_ = trainer_.steps();  // also where a stop ends it: at the end others would not try again
    std::optional<std::vector<double>> own;
    std::optional<DataError> problem;
    try {
      own = validation_->measure_sync(
          trainer_, [this] { return ranks_.may_go_on("while they validate"); }, share_of(world_.ranks));
    } catch (const DataError& error) {
      if (trainer_.shards().divides_weights()) throw;  // the others wait where their modules gather weights
      problem.emplace(error);
    }
    if (ranks_.any(!own, "behind a validation")) {
      if (ranks_.any(problem.has_value(), "behind a validation")) save_unvalidated(problem);
      return;  // who is told to stop has not measured all
    }
    const Validated validated =
        validation_->of_all(trainer_.model(), ranks_.all_say(*own, "behind a validation"));
    meters_.check_budget();
    const int64_t step = trainer_.steps();
    record_->validation(step, validated);
    world_.observer.message(
        validation_line(step, validated, validation_->samples(), config_.train.validate_ema));
    result.validation_loss = validated.loss;
    result.held_out = validation_->samples();
  }

  // Held-out samples may be read only now: one that cannot be read takes nothing of the training away.
  [[noreturn]] void save_unvalidated(const std::optional<DataError>& problem) {
    save();
    ranks_.any(false, "behind a save");                                // until the leader has done it
    if (!problem) throw policies::CollectiveError("in a validation");  // of which another says why
    throw DataError(fmt::format("{}; what was trained is saved as {}, its validation was not measured",
                                problem->what(), last_checkpoint_.string()));
  }

  // Only finite states are saved: the scalars are read first.
  void save() {
    read_if_behind();
    PhaseScope phase("save");
    last_checkpoint_ = save_training(store_, trainer_, loaded_, threads(), data_.identity);
    record_->checkpoint(trainer_.steps(), last_checkpoint_, meters_.report());
    meters_.check_budget();
  }

  // At a point that all ranks come to.
  std::optional<RankReport> report_of_ranks(const RunResult& result) const {
    if (world_.ranks == nullptr) return std::nullopt;
    const auto report = meters_.report();
    RankReport ranks{.peaks = {}, .sent = result.sent, .waiting = result.rank_wait_fraction};
    for (const auto& said :
         ranks_.all_say({report ? static_cast<double>(report->peak().peak.bytes) : 0.0}, "at the end"))
      ranks.peaks.push_back(static_cast<int64_t>(said.front()));
    return ranks;
  }

  void finish(RunResult& result) {
    save();
    const std::optional<RankReport> ranks = report_of_ranks(result);
    result.checkpoint = last_checkpoint_;
    const bool stopped = result.stopped;
    if (stopped) {
      result.next_step = "continue with dit-train --resume " + shell_quoted(out_.string());
    } else if (!model_.drawn.empty()) {
      samples_.at_end(*record_, last_checkpoint_, result);
    }
    result.memory = meters_.report();
    if (result.memory) result.memory->refused = samples_.refused();
    if (result.memory) result.memory->ranks = ranks;
    result.escalations = record_->escalations();
    result.report = record_->report_path();
    record_->end(stopped, result);
  }

  void sample_on_the_way() try {
    // Only finite weights are drawn with; with clipping they always are.
    if (config_.optimizer.clip == 0) read_if_behind();
    samples_.on_the_way(*record_);
  } catch (const c10::OutOfMemoryError& error) {
    give_up(error, fmt::format("the samples of step {} do not fit beside the training; {}lower {}, raise "
                               "memory.budget if it is set, or {}",
                               trainer_.steps(), last_checkpoint_text(), model_.count_keys,
                               policies::advise("train.sample_every", "0")));
  }

  std::string last_checkpoint_text() const {
    return last_checkpoint_.empty() ? "" : "last checkpoint: " + last_checkpoint_.string() + "; ";
  }

  [[noreturn]] void give_up(const c10::OutOfMemoryError& error, const std::string& advice) {
    throw_if_bare(error, config_, world_.observer);
    throw out_of_memory(error, advice, [&] {
      record_->out_of_memory(trainer_.steps(), report_with_refusal(meters_, error));
    });
  }

  void record_failure(const std::string& reason) {
    if (world_.observer.wants_bare_errors()) return;
    try {
      record_->failed(trainer_.steps(), reason, meters_.report());
    } catch (const FileError&) {  // a full disk, say, which may be the error itself
    }
  }

  const LoadedConfig& loaded_;
  const RunConfig& given_;
  const RunConfig& config_;
  const ModelFacts model_;
  const RunWorld& world_;
  const std::filesystem::path out_;
  const MemoryMeters& meters_;
  const RunData& data_;
  Trainer trainer_;
  const RunRanks ranks_;
  Watch watch_;
  RunSamples samples_;
  CheckpointStore store_;
  std::optional<Validation> validation_;
  std::optional<RunRecord> record_;  // once the folder is this run's
  const c10::Device device_;
  std::filesystem::path last_checkpoint_;
  StepScalars scalars_;
  int64_t skipped_steps_ = 0;
  StartPlan plan_;
  std::optional<ProcessSoFar> process_;  // once it trains
  std::optional<Escalation> escalation_;
  bool is_to_stop_ = false;      // of several ranks, before the next step
  bool taken_back_ = true;       // the step that was refused, not complete
  Mark mark_;                    // when the scalars were last read
  int64_t validated_step_ = -1;  // the last one
};

}  // namespace

std::unique_ptr<TrainingRun> build_run(const LoadedConfig& loaded, const RunConfig& given, c10::Device device,
                                       const RunData& data, const RunWorld& world,
                                       const std::optional<Weights>& initial, const MemoryMeters& meters) {
  return std::make_unique<Run>(loaded, given, device, data, world, initial, meters);
}

}  // namespace dtk
