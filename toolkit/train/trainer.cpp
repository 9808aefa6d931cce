#include "toolkit/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/job_observer.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/policies/simulation.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/core/text.h"
#include "toolkit/train/apply_policies.h"
#include "toolkit/train/dropout_masks.h"

namespace dtk {

using policies::Category;
using policies::OwnerScope;
using policies::PhaseScope;

namespace {

Category category_of(const TrainableModel& model, const std::string& name, const at::Tensor& parameter) {
  return parameter.requires_grad() || contains(model.derived(), name) ? Category::parameters
                                                                      : Category::frozen;
}

// "blocks.3.attn.qkv.weight" is reported under "blocks.3", "final_layer.linear.bias" under "final_layer".
std::string label_of(const TrainableModel& model, const std::string& name) {
  std::string label = name;
  for (const std::string& path : model.paths())
    if (name.starts_with(path + ".")) label = path;
  return label;
}

// Each parameter goes to its unit as soon as it is made: what has to be known of all, a model without values
// tells.
Trainer::Built build(const RunConfig& config, c10::Device device, const Ranks* ranks,
                     const Trainer::Initialise& initialise) {
  const OwnerScope owner(Category::parameters, "model");
  const std::unique_ptr<TrainableModel> shapes = make_model(config, at::kMeta);
  Trainer::Built built;
  built.shards = shards_of(config, *shapes, ranks);
  std::set<std::string> told;
  const auto made = [&](const std::string& name, const at::Tensor& parameter) {
    const std::string label = label_of(*shapes, name);
    policies::claim(parameter, category_of(*shapes, name, parameter), label);
    policies::claim_gradient_when_written(parameter, label);
    policies::name_parameter(parameter, name);
    built.shards->place(name, parameter);
    told.insert(name);
  };
  built.model = make_model(config, device,
                           policies::make_generator(device, stream_seed(config.train.seed, "init")), made);
  for (const auto& [name, parameter] : built.model->parameters())
    if (told.count(name) == 0) made(name, parameter);
  for (const auto& [name, tensor] : built.model->packed())
    policies::claim(tensor, Category::frozen, label_of(*shapes, name));
  if (initialise) initialise(*built.model, *built.shards);
  return built;
}

// Lets the gradients go unless all went well.
class GradientGuard {
 public:
  GradientGuard(AdamW& optimizer, std::optional<policies::GradientExchange>& exchange)
      : optimizer_(optimizer), exchange_(exchange) {}
  ~GradientGuard() {
    if (kept_) return;
    optimizer_.release_gradients();
    if (exchange_) exchange_->release();
  }
  void keep() { kept_ = true; }

 private:
  AdamW& optimizer_;
  std::optional<policies::GradientExchange>& exchange_;
  bool kept_ = false;
};

policies::TrafficByCollective since(const policies::TrafficByCollective& before,
                                    policies::TrafficByCollective now) {
  for (const auto& [collective, traffic] : before) {
    policies::Traffic& one = now[collective];
    one = {one.bytes - traffic.bytes, one.messages - traffic.messages};
  }
  return now;
}

// A CPU that trains has no core to spare; one beside a device has all of them.
int64_t reading_threads(const TrainOptions& train, c10::Device device) {
  constexpr int64_t kMax = 16;
  return device.is_cpu() ? 1 : std::clamp<int64_t>(train.threads.value_or(1), 1, kMax);
}

}  // namespace

Trainer::Trainer(const RunConfig& config, c10::Device device, std::shared_ptr<const DataSource> data,
                 Clock& clock, const Initialise& initialise, const Ranks* ranks)
    : config_(config),
      device_(device),
      data_(std::move(data)),
      clock_(clock),
      ranks_(ranks),
      built_(build(config, device, ranks, initialise)),
      model_(built_.model.get()),
      shards_(built_.shards.get()),
      optimizer_(config.optimizer, *shards_, config.train.on_not_finite),
      policies_(put_policies_in(config.policies, *model_, /*training=*/true, shards_)),
      noise_(policies::make_generator(device, 0)),
      saved_ledger_(config.memory.ledger ? policies::saved_tensor_ledger() : nullptr) {
  if (ranks_ != nullptr) exchange_.emplace(*shards_, config.distributed.reduce);
  OwnerScope owner(Category::optimizer, "scalars");
  loss_sum_ = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device));
  const std::vector<std::string> unused = model_->unused();
  for (const auto& parameter : model_->parameters()) {
    if (contains(unused, parameter.first)) unused_.push_back(parameter);
  }
  if (optimizer_.skips()) {
    skipped_.emplace(device, std::min<int64_t>(config.train.log_every, 1024));
    policies_.reserve_for_skipping();
  }
  if (config_.memory.on_out_of_memory == OnOutOfMemory::escalate)
    before_.emplace().scalars = at::zeros({3}, loss_sum_.options());
  register_dropout_masks();
  start_loader();
  started_ = clock_.seconds();  // building is not training
}

void Trainer::start_loader() {
  if (!config_.data.drop_last && data_->size() < config_.data.batch) {
    throw DataError(
        fmt::format("data: {} are fewer than data.batch = {}, so that every batch would be a short "
                    "one; lower data.batch",
                    data_->description(), config_.data.batch));
  }
  LoaderOptions options;
  options.seed = stream_seed(config_.train.seed, "data");
  options.drop_last = config_.data.drop_last;
  options.grouped = config_.data.order == DataOrder::grouped;
  if (options.grouped && !data_->length(0)) {
    throw ConfigError(
        fmt::format("data.order = \"grouped\" has no effect: {} are all of one length; leave it out",
                    data_->description()));
  }
  options.batch = samples_of_micro_batch(config_);
  options.prefetch = config_.data.prefetch;
  options.threads = config_.data.threads.value_or(reading_threads(config_.train, device_));
  options.start = state_.samples;
  options.pinned = !device_.is_cpu();
  options.planned = clock_.waits_for_threads();
  options.turns = turns();
  options.turn = ranks_ == nullptr ? 0 : ranks_->rank();
  loader_ = std::make_unique<Loader>(data_, options, [](const std::function<void()>& allocate) {
    OwnerScope owner(Category::data, "batches");
    allocate();
  });
}

void Trainer::restart_loader() {
  waited_ = exposed_wait_seconds();
  loader_.reset();  // its batches are not held beside those of the next
  start_loader();
}

const char* Trainer::phase(const char* name) const {
  if (state_.step == 0) return "first_step";
  return short_step_ ? "last_batch" : name;
}

void Trainer::step(bool measured) {
  short_step_ = loader_->available(config_.data.batch) < config_.data.batch;
  if (before_) begin_step();
  if (const int64_t samples = loader_->available(config_.data.batch); loader_->weight_of_next(samples) == 0)
    return pass_over(samples);
  // For whatever happens between the named phases below: gradients may be alive then, as in backward.
  PhaseScope between(phase("backward"));
  accumulate_gradients();
  update(measured);
}

void Trainer::pass_over(int64_t samples) {
  while (samples > 0) samples -= loader_->pass_over();
  ++state_.step;
  ++weightless_steps_;
  state_.samples = loader_->consumed();
}

void Trainer::begin_step() {
  before_->is_known = before_->is_updating = false;
  before_->state = state_;
  before_->losses_in_sum = losses_in_sum_;
  before_->scalars[0].copy_(loss_sum_);
  before_->scalars[1].copy_(optimizer_.gradient_norm());
  before_->scalars[2].copy_(optimizer_.stopped());
  before_->onednn = at::globalContext().userEnabledMkldnn();
  before_->is_known = true;
}

// Where oneDNN is refused memory, LibTorch switches it off for the process and multiplies by other means,
// with other bits: a step that nobody refused then.
void Trainer::check_onednn() {
  if (!before_ || !before_->onednn || at::globalContext().userEnabledMkldnn()) return;
  at::globalContext().setUserEnabledMkldnn(true);
  C10_THROW_ERROR(OutOfMemoryError, "oneDNN was refused memory for a product of matrices");
}

bool Trainer::take_back_step() {
  if (!before_ || is_writing_)
    throw std::logic_error(before_ ? "a step that has changed weights cannot be taken back"
                                   : "no step can be taken back: memory.on_out_of_memory is \"stop\"");
  if (!before_->is_known) return true;
  at::globalContext().setUserEnabledMkldnn(before_->onednn);
  if (state_.step == before_->state.step + 1) return false;
  state_ = before_->state;
  losses_in_sum_ = before_->losses_in_sum;
  loss_sum_.copy_(before_->scalars[0]);
  if (before_->is_updating) {  // else they are as they were, and may still be on their way to the averages
    optimizer_.gradient_norm().copy_(before_->scalars[1]);
    optimizer_.stopped().copy_(before_->scalars[2]);
  }
  step_part_ = 0;
  if (skipped_) skipped_->loss().zero_();
  restart_loader();
  return true;
}

void Trainer::accumulate_gradients() {
  const int64_t samples = loader_->available(config_.data.batch);
  short_step_ = samples < config_.data.batch;
  PhaseScope between(phase("backward"));
  const policies::DefaultGeneratorScope random(device_);
  const DropoutMaskScope masks;
  GradientGuard gradients(optimizer_, exchange_);
  const StepSize step{samples, loader_->weight_of_next(samples)};
  const int64_t micro_batch = samples_of_micro_batch(config_), at_once = turns();
  const int64_t all = (samples + micro_batch - 1) / micro_batch;
  policies::FoldableLoop rounds("micro-batches", (all + at_once - 1) / at_once);
  sent_before_step_ = sent();
  int64_t given = 0;  // micro-batches
  while (const auto round = rounds.next()) {
    const int64_t left_out = *round * at_once - given;  // by a plan
    for (int64_t i = 0; i < left_out; ++i, ++given) loader_->pass_over();
    if (exchange_ && left_out > 0) exchange_->count_again(left_out / at_once);
    const int64_t count = std::min(at_once, all - given);
    run_round(step, count, given + count == all, random.generator());
    given += count;
  }
  check_reached();
  gradients.keep();
}

policies::TrafficByCollective Trainer::sent() const {
  return exchange_ ? shards_->collectives()->sent() : policies::TrafficByCollective();
}

double Trainer::waited_for_ranks() const {
  return exchange_ ? shards_->collectives()->waited_seconds() : 0;
}

void Trainer::check_reached() const {
  std::vector<std::string> missed = optimizer_.without_gradient();
  if (!missed.empty()) {
    throw ConfigError(
        fmt::format("step {}: no gradient reached {}, which {} trained: the loss does not "
                    "depend on {}; train what it does depend on",
                    state_.step + 1, first_few(missed, 3), missed.size() == 1 ? "is" : "are",
                    missed.size() == 1 ? "it" : "them"));
  }
  for (const auto& [name, parameter] : unused_) {
    if (parameter.grad().defined())
      throw std::logic_error("the model says that no loss reaches " + name + ", which has a gradient");
  }
}

void Trainer::update(bool measured) {
  {
    PhaseScope phase_scope(phase("optimizer"));
    const GradientGuard gradients(optimizer_, exchange_);
    policies_.before_step();
    if (before_) before_->is_updating = true;
    optimizer_.prepare(measured, skipped_ ? skipped_->loss() : at::Tensor());
    if (skipped_) {
      const OwnerScope owner(Category::optimizer, "scalars");
      skipped_->prepare(optimizer_.stopped());
    }
    check_onednn();
    is_writing_ = true;
    optimizer_.apply(learning_rate());
  }
  if (skipped_) {
    policies_.after_step_unless(optimizer_.stopped());
  } else {
    policies_.after_step();
  }
  if (exchange_ && !short_step_ && (measured || sent_in_step_.empty()))
    sent_in_step_ = since(sent_before_step_, sent());
  ++state_.step;
  const int64_t first_sample = std::exchange(state_.samples, loader_->consumed());
  if (skipped_) {
    skipped_->end_step({state_.step, first_sample, state_.samples - first_sample},
                       std::exchange(step_part_, 0), optimizer_.stopped(), loss_sum_);
  }
  is_writing_ = false;
  // Whatever an operator made in this step and nobody claimed should be dead by now.
  if (config_.memory.ledger) policies::cpu_accounts().disown_temporaries();
}

// What a micro-batch draws is a function of where its first sample stands, and of nothing that ran before.
uint64_t Trainer::seed_of_next(std::string_view stream) const {
  const int64_t first = loader_->consumed(), of_epoch = loader_->samples_per_epoch();
  return seed_at(stream_seed(config_.train.seed, stream), first / of_epoch, first % of_epoch);
}

// The next micro-batches, of which each rank runs one at most.
void Trainer::run_round(const StepSize& step, int64_t micro_batches, bool is_last,
                        const at::Generator& of_dropout) {
  if (!exchange_) return forward_backward(step, of_dropout);
  const int64_t micro_batch = samples_of_micro_batch(config_);
  std::vector<int64_t> weights;  // of each micro-batch
  std::vector<bool> contributes(static_cast<size_t>(turns()), false);
  int64_t weight_before = 0;
  for (int64_t i = 0; i < micro_batches; ++i) {
    const int64_t weight = loader_->weight_of_next(loader_->available((i + 1) * micro_batch));
    weights.push_back(weight - weight_before);
    contributes[static_cast<size_t>(i)] = weights.back() > 0;
    weight_before = weight;
  }
  exchange_->begin_round({contributes, is_last});
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (i == ranks_->rank()) {
      forward_backward(step, of_dropout);
    } else {
      loader_->pass_over();
    }
  }
  if (shards_->divides_weights() && !contributes[static_cast<size_t>(ranks_->rank())]) pass_along(of_dropout);
  exchange_->end_round();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (contributes[i]) add_to_mean(exchange_->values()[static_cast<int64_t>(i)], weights[i], step);
  }
}

// The gradient of one micro-batch's part of the mean over the step.
void Trainer::forward_backward(const StepSize& step, const at::Generator& of_dropout) {
  const int64_t at_once = samples_at_once(config_);
  const uint64_t noise = seed_of_next("noise");
  policies::seed_generator(of_dropout, seed_of_next("dropout"));
  Batch whole;
  int64_t all = 0;
  for (int64_t first = 0; first == 0 || first < all; first += at_once) {
    at::Tensor loss;
    {
      PhaseScope phase_scope(phase("forward"));
      if (first == 0) {
        whole = loader_->next();
        all = whole.samples();
      }
      const int64_t samples = std::min(at_once, all - first);
      const bool in_parts = samples < all;
      if (first == 0 || model_->draws_for_whole()) policies::seed_generator(noise_, noise);
      Batch batch = in_parts ? part_of(whole, first, samples) : std::move(whole);
      const int64_t weight = batch.weight();
      if (weight == 0) continue;
      loss = loss_of(std::move(batch));
      exchange_ ? exchange_->set_value(loss.detach()) : add_to_mean(loss, weight, step);
      if (weight < step.weight)
        loss = loss / (static_cast<double>(step.weight) / static_cast<double>(weight));
    }
    PhaseScope phase_scope(phase("backward"));
    torch::autograd::backward({loss}, {});
  }
}

// All ranks gather the weights of each module together: one without samples does in a pass that counts for
// nothing.
void Trainer::pass_along(const at::Generator& of_dropout) {
  at::Tensor loss;
  {
    PhaseScope phase_scope(phase("forward"));
    policies::seed_generator(noise_, 0);
    policies::seed_generator(of_dropout, 0);
    Batch batch = [&] {
      const OwnerScope owner(Category::data, "batches");
      return model_->made_up_batch(samples_of_micro_batch(config_), noise_);
    }();
    loss = loss_of(std::move(batch));
  }
  PhaseScope phase_scope(phase("backward"));
  torch::autograd::backward({loss}, {});
}

// A short step counts as the part of one that it is.
void Trainer::add_to_mean(const at::Tensor& loss, int64_t weight, const StepSize& step) {
  const double of_step = static_cast<double>(weight * step.samples * config_.train.accumulate);
  const double part = of_step / static_cast<double>(step.weight * config_.data.batch);
  (skipped_ ? skipped_->loss() : loss_sum_).add_(loss.detach(), part);
  (skipped_ ? step_part_ : losses_in_sum_) += part;
}

at::Tensor Trainer::loss_of(Batch batch) {
  std::optional<policies::SavedTensorScope> ledger;
  if (saved_ledger_) ledger.emplace(saved_ledger_);
  policies::ModulePathScope path("loss");
  const auto policy_scope = policies_.forward_scope();
  return model_->loss(std::move(batch), noise_, /*training=*/true);
}

StepScalars Trainer::read_scalars_sync() {
  optimizer_.look_back();
  at::Tensor on_device = at::stack({loss_sum_, optimizer_.gradient_norm(), optimizer_.stopped()});
  if (skipped_) on_device = at::cat({on_device, skipped_->flags()});
  const std::vector<double> values = policies::values_sync(on_device);
  StepScalars scalars;
  scalars.finite = skipped_ || values[2] == 0.0;
  if (skipped_) {
    const SkippedSteps::Read read = skipped_->read(values.data() + 3);
    losses_in_sum_ = read.parts;
    scalars.skipped = read.skipped;
    scalars.skipped_in_a_row = read.longest_row;
  }
  if (losses_in_sum_ > 0) last_loss_ = values[0] / losses_in_sum_;
  scalars.loss = last_loss_;
  scalars.gradient_norm = values[1];
  scalars.weightless_steps = std::exchange(weightless_steps_, 0);
  loss_sum_.zero_();
  losses_in_sum_ = 0;
  return scalars;
}

std::vector<int64_t> Trainer::samples_of(const SkippedStep& step) const {
  return loader_->samples_at(step.first_sample, step.samples);
}

double Trainer::own_seconds() const {
  return state_.seconds + clock_.seconds() - started_;
}

RunPosition Trainer::position() const {
  return {.step = state_.step,
          .samples = state_.samples,
          .samples_per_epoch = loader_->samples_per_epoch(),
          .seconds = elapsed_seconds(),
          .resumed = resumed_epoch_};
}

double Trainer::learning_rate() const {
  return dtk::learning_rate(config_, position());
}

double Trainer::progress() const {
  return run_progress(config_.train, position());
}

int64_t Trainer::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : model_->parameters()) {
    if (parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

Trainer::ClockStop::ClockStop(Trainer& trainer) : trainer_(trainer), begun_(trainer.clock_.seconds()) {}
Trainer::ClockStop::~ClockStop() {
  trainer_.started_ += trainer_.clock_.seconds() - begun_;
}

std::vector<NamedTensor> Trainer::sample(const KeepGoing& keep_going, const DataSource* shown,
                                         const SharedSamples& shared) {
  const ClockStop clock(*this);
  const PhaseScope phase_scope("sample");
  const at::NoGradGuard no_grad;
  const auto exchange = config_.sample.ema ? policies_.sampling_weights() : nullptr;
  const auto policy_scope = policies_.forward_scope();  // after the exchange: casts are of the new weights
  return model_->sample(shown != nullptr ? *shown : *data_, keep_going, shared);
}

TrainingState Trainer::state() const {
  TrainingState state = state_;
  state.seconds = elapsed_seconds();
  state.samples_per_epoch = loader_->samples_per_epoch();
  state.micro_batch = samples_of_micro_batch(config_);
  return state;
}

int64_t Trainer::position_of(const TrainingState& state) const {
  const int64_t batch = samples_of_micro_batch(config_), then = state.samples_per_epoch;
  const int64_t now = config_.data.drop_last ? data_->size() / batch * batch : data_->size();
  if (then == 0 || now == 0 || (then == now && state.micro_batch == batch)) return state.samples;
  const int64_t epoch = state.samples / then, given_out = state.samples % then;
  if (config_.data.order == DataOrder::grouped && given_out > 0 && state.micro_batch != batch) {
    throw ConfigError(
        fmt::format("data.order = \"grouped\": which samples share a batch follows from data.batch / "
                    "train.accumulate, which was {} and is {} now, within an epoch; set it as it was",
                    state.micro_batch, batch));
  }
  constexpr int64_t most = std::numeric_limits<int64_t>::max() / 2;
  if (epoch > most / now) throw std::invalid_argument("Trainer: no run has so many epochs");
  return epoch * now + std::min(now, (given_out + batch - 1) / batch * batch);
}

void Trainer::restore(const TrainingState& state) {
  state_ = state;
  state_.samples = position_of(state);
  restart_loader();
  resumed_epoch_ = state_.samples / loader_->samples_per_epoch();
  started_ = clock_.seconds();
  if (agreed_seconds_) agreed_seconds_ = state_.seconds;
}

}  // namespace dtk
