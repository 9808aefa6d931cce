#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/advice.h>
#include <dtk/policies/ema.h>
#include <dtk/policies/internal/async_copies.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/simulation.h>

#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>

namespace dtk::policies {
namespace {

void check_options(const EmaOptions& options) {
  if (!(options.decay >= 0.0 && options.decay < 1.0)) {
    throw PolicyError("policies.ema.decay",
                      c10::str(" = ", options.decay, " is out of range; allowed: [0, 1)"));
  }
  if (options.every < 1) {
    throw PolicyError("policies.ema.every",
                      c10::str(" = ", options.every, " is out of range; allowed: [1, inf)"));
  }
}

// Why there can be no average of these; "" if there can. Both forms move whole stretches of memory: storages
// trade places, or pieces are copied as they lie.
std::string obstacle(const std::vector<std::string>& names, const std::vector<at::Tensor>& parameters) {
  if (parameters.empty()) return "the model has no trainable parameter to average";
  const at::Device device = parameters.front().device();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (parameter.scalar_type() == at::kFloat && parameter.is_non_overlapping_and_dense() &&
        parameter.device() == device) {
      continue;
    }
    return c10::str("parameter ", names[i], " is ", parameter.scalar_type(), " with sizes ",
                    parameter.sizes(), " and strides ", parameter.strides(), " on ", parameter.device(),
                    "; allowed: Float without gaps on ", device, ", as the first one");
  }
  return {};
}

// Nothing else lies in the tensor's storage, and no other tensor sees it.
bool has_storage_alone(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.storage().nbytes() == tensor.nbytes() &&
         tensor.storage().use_count() == 1;
}

// In steps of 1 the very decay; for more the product, as if the weights had been the same in all `every`
// steps: so skipped steps age the average as any other step does.
double decay_of_update(const EmaOptions& options, int64_t steps) {
  double decay = 1.0;
  for (int64_t n = steps - options.every; n < steps; ++n) decay *= ema_decay(options, n);
  return decay;
}

std::string one_decimal(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << value;
  return text.str();
}

}  // namespace

double ema_decay(const EmaOptions& options, int64_t n) {
  if (!options.warmup) return options.decay;
  const auto count = static_cast<double>(n);
  return std::min(options.decay, (1.0 + count) / (10.0 + count));
}

Ema::Ema(const EmaOptions& options, const NamedTensors& parameters, std::unique_ptr<StagingCopies> engine,
         bool of_own_parts)
    : options_(options), of_own_parts_(of_own_parts) {
  check_options(options);
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    names_.push_back(name);
    parameters_.push_back(parameter);
  }
  obstacle_ = obstacle(names_, parameters_);
  if (!obstacle_.empty()) {
    if (options.enabled == Enabled::on) {
      throw PolicyError("policies.ema.enabled", " = true, but " + obstacle_ + "; change that, or " +
                                                    advise("policies.ema.enabled", "false"));
    }
    names_.clear();
    parameters_.clear();
    return;
  }
  const at::Device device = parameters_.front().device();
  const bool nothing_to_move = device.is_cpu() && engine == nullptr;
  if (options.device == EmaDevice::cpu && nothing_to_move && options.enabled == Enabled::on) {
    throw PolicyError(
        "policies.ema",
        ": asked for in host memory, but the training device is the CPU, so there is nothing to "
        "move; remove policies.ema.enabled or " +
            advise("policies.ema.device", "\"same\""));
  }
  if (!options.pinned && nothing_to_move) {
    throw PolicyError("policies.ema.pinned",
                      " = false has no use on the CPU, where no average is copied; allowed: true, the "
                      "default; remove policies.ema.pinned");
  }
  const bool in_host_memory = options.device == EmaDevice::cpu && !nothing_to_move;
  {
    const OwnerScope owner(Category::ema, "shadow");
    std::optional<HostTierScope> tier;
    if (in_host_memory && device.is_cpu()) tier.emplace();  // else all CPU memory is the host's
    const at::NoGradGuard no_grad;
    const HostCopyScope copy;
    for (const at::Tensor& parameter : parameters_) {
      averages_.push_back(parameter.detach().to(in_host_memory ? at::Device(at::kCPU) : device, at::kFloat,
                                                /*non_blocking=*/false, /*copy=*/true));
    }
  }
  if (!in_host_memory) return;
  if (engine == nullptr) engine = make_device_staging_copies(device);
  host_ = std::make_unique<HostEma>(parameters_, averages_, std::move(engine),
                                    options.pinned && !device.is_cpu());
}

// While they are, the parameters are not the weights and the averages not the averages.
void Ema::refuse_exchanged(const char* what) const {
  if (!exchanged_) return;
  throw PolicyError(
      "policies.ema",
      std::string(": ") + what +
          " while weights and averages are exchanged; end the WeightExchange that sampling_weights() "
          "returned first");
}

// Throws what is still to be said, and lets the averages come to rest.
void Ema::settle() const {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (host_ != nullptr) host_->flush();
}

void Ema::before_step() {
  refuse_exchanged("a step");
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (host_ != nullptr) host_->wait_copied();
}

void Ema::reserve_for_skipping() {
  if (!obstacle_.empty() || host_ != nullptr) return;
  const OwnerScope owner(Category::ema, "scalars");
  weight_ = at::empty({}, averages_.front().options());
  zero_ = at::zeros({}, averages_.front().options());
}

// `skipped`: undefined where no step can be.
void Ema::average(const at::Tensor& skipped) {
  refuse_exchanged("a step");
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (!obstacle_.empty()) return;
  const PhaseScope phase("ema");
  if (++updates_ % options_.every != 0) return;
  const double decay = decay_of_update(options_, updates_);
  if (host_ != nullptr) {
    host_->post(decay, skipped);
    return;
  }
  at::NoGradGuard no_grad;
  if (!skipped.defined()) {
    at::_foreach_lerp_(averages_, parameters_, 1.0 - decay);
    return;
  }
  // A weight of 0 keeps every value, and any other gives the bits of the operator above.
  if (!weight_.defined()) reserve_for_skipping();
  weight_.fill_(1.0 - decay).lerp_(zero_, skipped);  // arithmetic with numbers would take memory for them
  for (size_t i = 0; i < averages_.size(); ++i) averages_[i].lerp_(parameters_[i].detach(), weight_);
}

size_t Ema::pieces() const {
  return host_ != nullptr ? host_->pieces() : parameters_.size();
}

bool Ema::is_view(size_t piece) const {
  return host_ == nullptr && !(has_storage_alone(parameters_[piece]) && has_storage_alone(averages_[piece]));
}

// A storage of its own changes hands; a view's contents do, through a copy of the one tensor.
void Ema::trade(size_t piece, bool by_content) {
  if (host_ != nullptr) {
    host_->exchange(piece);
    return;
  }
  if (by_content) {
    const at::NoGradGuard no_grad;
    const OwnerScope owner(Category::ema, "exchange");
    const at::Tensor stash = parameters_[piece].detach().clone();
    parameters_[piece].detach().copy_(averages_[piece]);
    averages_[piece].copy_(stash);
    return;
  }
  const at::Storage raw = parameters_[piece].storage();
  const at::Storage average = averages_[piece].storage();
  parameters_[piece].unsafeGetTensorImpl()->set_storage_keep_dtype(average);
  averages_[piece].unsafeGetTensorImpl()->set_storage_keep_dtype(raw);
}

class Ema::Exchange final : public WeightExchange {
 public:
  explicit Exchange(Ema& ema) : ema_(ema) {}
  // Apart from the constructor, so that what was traded before an exception is traded back.
  void begin() {
    ema_.exchanged_ = true;
    at::autocast::clear_cache();  // a scope around the exchange may hold casts of the other weights
    by_content_.reserve(ema_.pieces());
    for (; traded_ < ema_.pieces(); ++traded_) {
      by_content_.push_back(ema_.is_view(traded_));
      ema_.trade(traded_, by_content_.back());
    }
  }
  ~Exchange() override {
    at::autocast::clear_cache();
    try {
      for (; traded_ > 0; --traded_) ema_.trade(traded_ - 1, by_content_[traded_ - 1]);
    } catch (...) {
      ema_.failure_ = std::current_exception();
    }
    ema_.exchanged_ = false;
  }

 private:
  Ema& ema_;
  size_t traded_ = 0;             // pieces 0 to traded_ - 1 are exchanged
  std::vector<bool> by_content_;  // of these: how, as the way back must be the same
};

std::unique_ptr<WeightExchange> Ema::sampling_weights() {
  refuse_exchanged("a second exchange");
  settle();
  if (!obstacle_.empty()) return nullptr;
  auto exchange = std::make_unique<Exchange>(*this);
  exchange->begin();
  return exchange;
}

PolicyState Ema::state() const {
  refuse_exchanged("state() was called");
  settle();
  PolicyState state;
  for (size_t i = 0; i < names_.size(); ++i) state.tensors.emplace_back(names_[i], averages_[i]);
  state.counters["updates"] = updates_;
  state.of_own_parts = of_own_parts_;
  return state;
}

void Ema::restore(const StoredPolicyState& state) {
  refuse_exchanged("restore() was called");
  settle();
  const auto updates = state.counters.find("updates");
  if (updates == state.counters.end())
    throw PolicyError("policies.ema", ": the state has no count of updates");
  if (state.tensors.size() != names_.size()) {
    throw PolicyError("policies.ema", c10::str(": ", state.tensors.size(), " averages for ", names_.size(),
                                               " trainable parameters"));
  }
  std::vector<const StoredPolicyState::Entry*> kept;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto found = std::find_if(state.tensors.begin(), state.tensors.end(),
                                    [&](const auto& entry) { return entry.name == names_[i]; });
    if (found == state.tensors.end())
      throw PolicyError("policies.ema", ": no average for parameter " + names_[i]);
    if (found->shape != averages_[i].sizes()) {
      throw PolicyError("policies.ema",
                        c10::str(": the average of ", names_[i], " is ", at::IntArrayRef(found->shape),
                                 ", the parameter is ", averages_[i].sizes()));
    }
    kept.push_back(&*found);
  }
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < names_.size(); ++i) kept[i]->read_into(averages_[i]);
  updates_ = updates->second;
}

PolicyReport Ema::report() const {
  settle();
  if (!obstacle_.empty()) return {name(), false, "no average: " + obstacle_};
  const at::Device device = parameters_.front().device();
  int64_t shadow = 0;
  for (const at::Tensor& average : averages_) shadow += static_cast<int64_t>(average.nbytes());
  PolicyReport report{name(), true, "", 0};
  if (options_.device == EmaDevice::cpu && host_ == nullptr)
    report.reason = "training device is the CPU, nothing to move; ";
  report.reason += c10::str("fp32 average of ", names_.size(), " tensors ",
                            host_ != nullptr ? "in host memory" : "on " + device.str(), ", decay ",
                            options_.decay, options_.warmup ? " with warm-up" : "");
  if (options_.every > 1) report.reason += c10::str(", one update every ", options_.every, " steps");
  if (updates_ > 0 && updates_ < options_.every && !simulating()) {
    report.reason +=
        c10::str(": none yet in ", updates_, updates_ == 1 ? " step" : " steps",
                 ", so it is still the weights that the run began with; lower policies.ema.every");
  }
  (host_ != nullptr ? report.host_bytes : report.device_bytes) = shadow;
  report.saved_bytes = host_ != nullptr ? shadow : 0;
  if (host_ == nullptr) return report;
  report.host_bytes += host_->slot_bytes();
  report.reason += "; saves " + one_decimal(1e-6 * static_cast<double>(shadow)) + " MB on " + device.str();
  if (host_->updates() == 0 || simulating()) return report;
  const double per_update = 1e3 / static_cast<double>(host_->updates());
  report.reason += ", " + one_decimal(per_update * host_->ring().hidden_seconds()) + " ms hidden and " +
                   one_decimal(per_update * host_->ring().exposed_seconds()) +
                   " ms exposed on the host an update";
  return report;
}

}  // namespace dtk::policies
