// Trains a model: one optimizer step at a time.
//
// Everything a step needs from outside (data, clock) comes through interfaces, and nothing in a step depends
// on the value of a tensor, so the same code can run where nothing is computed.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <dtk/policies/gradient_exchange.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/policies/shards.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "toolkit/checkpoint/base.h"
#include "toolkit/config/config.h"
#include "toolkit/core/clock.h"
#include "toolkit/data/data_source.h"
#include "toolkit/data/loader.h"
#include "toolkit/distributed/ranks.h"
#include "toolkit/train/lr_schedule.h"
#include "toolkit/train/optimizer.h"
#include "toolkit/train/skipped_steps.h"
#include "toolkit/train/trainable_model.h"

namespace dtk {

/// What the last steps did, read from the device in one copy.
struct StepScalars {
  double loss = 0;           // mean over the steps since the scalars were last read
  double gradient_norm = 0;  // of the last step that was measured, before clipping
  bool finite = true;        // false: some gradient was not finite; measured steps have not changed weights
                             // since then. Always true where such steps are skipped
  /// Where they are: which of the steps since then changed nothing, and how many in a row at most, counting
  /// on from before. `loss` is the mean over the others, without any the one that was read before.
  std::vector<SkippedStep> skipped = {};
  /// Steps since then whose samples weighed nothing (DataSource::weight()): they changed nothing.
  int64_t weightless_steps = 0;
  int64_t skipped_in_a_row = 0;
};

/// What makes a run continue bit for bit on the same number of CPU threads.
struct TrainingState {
  int64_t step = 0;
  int64_t samples = 0;  // trained on: given out by the loader
  // What the two say of its place in an epoch; 0: as they are now.
  int64_t samples_per_epoch = 0, micro_batch = 0;
  double seconds = 0;  // training time so far
};

/// What take_back_step() puts back.
struct StateBeforeStep {
  bool is_known = false;     // of the running step; else nothing of it has begun
  bool is_updating = false;  // update() has begun to write
  TrainingState state = {};
  double losses_in_sum = 0;
  at::Tensor scalars = {};  // (3) on the device: sum of the losses, gradient norm, stopped
  bool onednn = false;      // LibTorch's switch
};

class Trainer {
 public:
  /// Of divided weights, own parts are what there is.
  using Initialise = std::function<void(const TrainableModel& model, const policies::Shards& shards)>;
  struct Built {
    std::unique_ptr<TrainableModel> model;
    std::unique_ptr<policies::Shards> shards;
  };

  /// Builds model, optimizer and the configured policies on `device`, from train.seed alone. The clock must
  /// outlive the trainer. Throws std::invalid_argument for an impossible model, PolicyError for a policy,
  /// DataError for data of less than one batch.
  /// `data`: as they are trained on; what augments them, such as FlippedSource, is the caller's.
  /// `initialise`, if given, may change the new model's parameters before the policies see them: an EMA
  /// begins as a copy of what it leaves. train.init_from is the caller's to read.
  /// `ranks`: those that train together, of which each runs its micro-batches, has the whole model, and
  /// updates its own() part of it, or all; null: this process alone. Every rank calls the same members, with
  /// the same data.
  Trainer(const RunConfig& config, c10::Device device, std::shared_ptr<const DataSource> data, Clock& clock,
          const Initialise& initialise = {}, const Ranks* ranks = nullptr);

  /// One optimizer step over data.batch samples, or the fewer that are left of an epoch without
  /// data.drop_last: gradients of their mean loss, by weight, then update. Where all of them together weigh
  /// nothing, they are passed over, and only the count of steps changes. Throws what the data source throws;
  /// no gradient then stays behind that the next step would add to. All memory is taken before the first
  /// weight changes. `measured` = false where nobody will read this
  /// step's gradient norm: AdamW::step().
  void step(bool measured = true);
  /// The first half of a step: adds the gradients of its samples to those of the parameters. Throws
  /// ConfigError that names the parameters which the loss did not reach.
  void accumulate_gradients();
  /// The second half: changes the weights and lets the gradients go.
  void update(bool measured = true);

  /// Takes back the latest step(), which threw: the trainer is as it was before, data, random numbers and the
  /// mean of the losses included. False if that step was complete, and stays. Only with
  /// memory.on_out_of_memory = "escalate". Throws std::logic_error if weights had changed already.
  bool take_back_step();

  /// Numbers of a step's samples in the training data. Costs the order of a whole epoch.
  std::vector<int64_t> samples_of(const SkippedStep& step) const;

  /// The one place that waits for the device and reads values.
  StepScalars read_scalars_sync();

  /// How much of the run is over, in [0, 1]: run_progress().
  double progress() const;
  /// True once train.steps, train.epochs or train.seconds is reached.
  bool done() const { return progress() >= 1.0; }
  /// Until the loader has prepared all that it may; for exact figures of memory. Throws as step().
  void wait_for_data() const { loader_->wait_until_full(); }

  int64_t steps() const { return state_.step; }
  int64_t samples() const { return loader_->consumed(); }
  /// Training time of the run so far. Of several ranks: as last agreed on.
  double elapsed_seconds() const { return agreed_seconds_.value_or(own_seconds()); }
  double own_seconds() const;  ///< by this process's clock
  /// From now on elapsed_seconds(), at each rank: what follows from it must be the same at all.
  void agree_on_seconds(double seconds) { agreed_seconds_ = seconds; }
  double learning_rate() const;  ///< of the next step
  double exposed_wait_seconds() const { return waited_ + (loader_ ? loader_->exposed_wait_seconds() : 0); }
  int64_t parameter_count() const;  ///< trainable
  /// What this rank sends in a measured step of whole micro-batches, by collective; empty where it trains
  /// alone, or before one.
  const policies::TrafficByCollective& sent_in_step() const { return sent_in_step_; }
  /// Seconds that it waited for other ranks.
  double waited_for_ranks() const;
  /// What each rank updates.
  const policies::Shards& shards() const { return *shards_; }

  /// The model's samples (TrainableModel::sample), drawn with the averages where sample.ema says so. Neither
  /// the run's streams nor its weights change, and the time it takes is none of the training's.
  /// `shown`: in place of the training data, for models whose samples continue what they are shown.
  std::vector<NamedTensor> sample(const KeepGoing& keep_going = {}, const DataSource* shown = nullptr,
                                  const SharedSamples& shared = {});

  /// While it lives, no training time passes: neither for train.seconds nor for any figure of speed.
  class ClockStop {
   public:
    [[nodiscard]] explicit ClockStop(Trainer& trainer);
    ~ClockStop();
    ClockStop(const ClockStop&) = delete;
    ClockStop& operator=(const ClockStop&) = delete;

   private:
    Trainer& trainer_;
    const double begun_;
  };

  const TrainableModel& model() const { return *model_; }
  c10::Device device() const { return device_; }
  /// Where its frozen weights are, which no checkpoint holds then; absent: they are in no file of others.
  const std::optional<BaseWeights>& base() const { return base_; }
  void set_base(BaseWeights base) { base_ = std::move(base); }
  const AdamW& optimizer() const { return optimizer_; }
  const policies::PolicySet& policies() const { return policies_; }
  policies::PolicySet& policies() { return policies_; }

  TrainingState state() const;
  /// Continues from `state`, at the next place where a batch begins if the batch or the data are others by
  /// now: the epoch and what it has given out stay, but for less than a micro-batch. Model, optimizer and
  /// policies are restored by their owner (save_load.h).
  void restore(const TrainingState& state);
  /// The epoch in which this run was last resumed, which [schedule.epochs] may heed. Whoever builds a run
  /// anew in mid-run keeps it.
  int64_t resumed_epoch() const { return resumed_epoch_; }
  void set_resumed_epoch(int64_t epoch) { resumed_epoch_ = epoch; }
  TrainableModel& model() { return *model_; }
  AdamW& optimizer() { return optimizer_; }

 private:
  at::Tensor loss_of(Batch batch);
  /// What the running step is a mean over.
  struct StepSize {
    int64_t samples, weight;
  };
  void add_to_mean(const at::Tensor& loss, int64_t weight, const StepSize& step);
  int64_t turns() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  void run_round(const StepSize& step, int64_t micro_batches, bool is_last, const at::Generator& of_dropout);
  void forward_backward(const StepSize& step, const at::Generator& of_dropout);
  void pass_along(const at::Generator& of_dropout);
  uint64_t seed_of_next(std::string_view stream) const;
  void pass_over(int64_t samples);
  void begin_step();
  policies::TrafficByCollective sent() const;
  void check_onednn();
  void check_reached() const;
  int64_t position_of(const TrainingState& state) const;
  void start_loader();
  void restart_loader();
  const char* phase(const char* name) const;
  RunPosition position() const;

  const RunConfig config_;
  const c10::Device device_;
  const std::shared_ptr<const DataSource> data_;
  Clock& clock_;
  double started_ = 0;  // when training began, by the clock

  const Ranks* const ranks_;
  const Built built_;
  TrainableModel* const model_;
  policies::Shards* const shards_;
  models::NamedTensors unused_;  // TrainableModel::unused()
  std::optional<BaseWeights> base_;
  AdamW optimizer_;
  policies::PolicySet policies_;
  std::optional<policies::GradientExchange> exchange_;  // with ranks_
  policies::TrafficByCollective sent_before_step_;
  policies::TrafficByCollective sent_in_step_;  // of the latest whole one
  at::Generator noise_;
  std::shared_ptr<policies::SavedTensorLayer> saved_ledger_;

  TrainingState state_;
  std::optional<double> agreed_seconds_;
  int64_t resumed_epoch_ = 0;              // number of the epoch in which restore() went on
  at::Tensor loss_sum_;                    // scalar on the device
  double last_loss_ = 0;                   // that was read
  std::optional<SkippedSteps> skipped_;    // where steps are skipped
  double step_part_ = 0;                   // of the running step, where it may be skipped
  int64_t weightless_steps_ = 0;           // since scalars were read
  double losses_in_sum_ = 0;               // micro-batches; a short one counts as a part of one
  bool is_writing_ = false;                // the running step has begun to change weights
  std::optional<StateBeforeStep> before_;  // the running step, where it may be taken back
  double waited_ = 0;                      // for loaders that are gone, in seconds
  bool short_step_ = false;                // the running step is the last and shorter one of an epoch
  // Null after a restore() that threw.
  std::unique_ptr<Loader> loader_;  // last: its thread starts when all else is built
};

}  // namespace dtk
