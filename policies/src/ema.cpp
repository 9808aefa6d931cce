#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/ema.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>

namespace dtk::policies {

double ema_decay(const EmaOptions& options, int64_t n) {
  if (!options.warmup) return options.decay;
  const auto count = static_cast<double>(n);
  return std::min(options.decay, (1.0 + count) / (10.0 + count));
}

Ema::Ema(const EmaOptions& options, const NamedTensors& parameters) : options_(options) {
  if (!(options.decay >= 0.0 && options.decay < 1.0)) {
    throw PolicyError(c10::str("policies.ema.decay = ", options.decay, " is out of range; allowed: [0, 1)"));
  }
  OwnerScope owner(Category::ema, "shadow");
  at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    names_.push_back(name);
    parameters_.push_back(parameter);
    averages_.push_back(parameter.detach().to(at::kFloat, /*non_blocking=*/false, /*copy=*/true));
  }
  if (names_.empty()) {
    throw PolicyError("policies.ema: the model has no trainable parameter to average; set enabled = false");
  }
}

void Ema::after_step() {
  PhaseScope phase("ema");
  at::NoGradGuard no_grad;
  const double decay = ema_decay(options_, updates_++);
  at::_foreach_lerp_(averages_, parameters_, 1.0 - decay);
}

class Ema::Exchange final : public WeightExchange {
 public:
  explicit Exchange(Ema& ema) : ema_(ema) { trade(); }
  ~Exchange() override { trade(); }

 private:
  // Parameter and average are dense fp32 tensors of one shape on one device, so their storages may trade
  // places.
  void trade() {
    for (size_t i = 0; i < ema_.parameters_.size(); ++i) {
      const at::Storage raw = ema_.parameters_[i].storage();
      const at::Storage average = ema_.averages_[i].storage();
      ema_.parameters_[i].unsafeGetTensorImpl()->set_storage_keep_dtype(average);
      ema_.averages_[i].unsafeGetTensorImpl()->set_storage_keep_dtype(raw);
    }
  }
  Ema& ema_;
};

std::unique_ptr<WeightExchange> Ema::sampling_weights() {
  return std::make_unique<Exchange>(*this);
}

PolicyState Ema::state() const {
  PolicyState state;
  for (size_t i = 0; i < names_.size(); ++i) state.tensors.emplace_back(names_[i], averages_[i]);
  state.counters["updates"] = updates_;
  return state;
}

void Ema::restore(const PolicyState& state) {
  const auto updates = state.counters.find("updates");
  if (updates == state.counters.end()) throw PolicyError("policies.ema: the state has no count of updates");
  if (state.tensors.size() != names_.size()) {
    throw PolicyError(c10::str("policies.ema: ", state.tensors.size(), " averages for ", names_.size(),
                               " trainable parameters"));
  }
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto found = std::find_if(state.tensors.begin(), state.tensors.end(),
                                    [&](const auto& entry) { return entry.first == names_[i]; });
    if (found == state.tensors.end())
      throw PolicyError("policies.ema: no average for parameter " + names_[i]);
    if (found->second.sizes() != averages_[i].sizes()) {
      throw PolicyError(c10::str("policies.ema: the average of ", names_[i], " is ", found->second.sizes(),
                                 ", the parameter is ", averages_[i].sizes()));
    }
    averages_[i].copy_(found->second);
  }
  updates_ = updates->second;
}

PolicyReport Ema::report() const {
  PolicyReport report{name(), true, "", 0};
  for (const at::Tensor& average : averages_) report.device_bytes += static_cast<int64_t>(average.nbytes());
  report.reason = c10::str("fp32 average of ", names_.size(), " tensors on ", averages_.front().device(),
                           ", decay ", options_.decay, options_.warmup ? " with warm-up" : "");
  report.saved_bytes = 0;
  return report;
}

}  // namespace dtk::policies
