#include <ATen/core/grad_mode.h>
#include <dtk/policies/attention.h>
#include <dtk/policies/ema.h>
#include <dtk/policies/internal/checkpoint_policy.h>
#include <dtk/policies/internal/job_observer.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/precision.h>
#include <dtk/policies/simulation.h>

#include <numeric>
#include <utility>

#include "set/seam_checks.h"

namespace dtk::policies {
namespace {

class Scopes final : public PolicyScope {
 public:
  explicit Scopes(std::shared_ptr<SeamUse> use) : use_(std::move(use)) {
    ++use_->scopes_alive;
    if (at::GradMode::is_enabled()) ++use_->training_scopes;
  }
  void push(std::unique_ptr<PolicyScope> scope) { scopes_.push_back(std::move(scope)); }
  ~Scopes() override {
    while (!scopes_.empty()) scopes_.pop_back();  // the last begun ends first
    --use_->scopes_alive;
  }

 private:
  const std::shared_ptr<SeamUse> use_;
  std::vector<std::unique_ptr<PolicyScope>> scopes_;
};

}  // namespace

// The order of the seam's layers, from the inside out: a segment that checkpointing runs again must meet the
// casts and the attention of its first run.
PolicySet::PolicySet(const PolicyOptions& options, const Subject& subject, Seam& seam,
                     std::unique_ptr<StagingCopies> engine)
    : engine_(std::make_unique<SavedTensorEngineGuard>()), use_(std::make_shared<SeamUse>()) {
  use_->paths.insert(subject.paths.begin(), subject.paths.end());
  Seam changed = seam;  // what is refused leaves the seam as it was
  changed.run = [inner = std::move(changed.run), named = run_with_module_path()](
                    std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    const ModuleFn within = [&](Tensors&& in) { return inner(path, fn, std::move(in)); };
    return named(path, within, std::move(inputs));
  };
  const auto add = [&](const auto& one, const char* name, auto make) {
    if (one.enabled == Enabled::off) {
      off_.push_back({name, false, std::string("switched off: policies.") + name + ".enabled = false"});
    } else {
      list_.push_back(make());
    }
  };
  add(options.precision, "precision",
      [&] { return std::make_unique<Precision>(options.precision, subject.device, subject.paths); });
  // Without it attention is materialised, which a policy must see to as well.
  list_.push_back(std::make_unique<AttentionPolicy>(options.attention));
  add(options.ema, "ema",
      [&] { return std::make_unique<Ema>(options.ema, subject.parameters, std::move(engine)); });
  add(options.checkpoint, "checkpoint",
      [&] { return std::make_unique<CheckpointPolicy>(options.checkpoint, subject.paths); });
  for (const auto& policy : list_) {
    policy->apply(changed);
    if (policy->needs_forward_scope() && use_->needs_scope.empty()) use_->needs_scope = policy->name();
  }
  changed.run = run_observed(run_checked(use_, std::move(changed.run)));
  seam = std::move(changed);
}

std::unique_ptr<PolicyScope> PolicySet::forward_scope() {
  auto scopes = std::make_unique<Scopes>(use_);
  for (const auto& policy : list_) {
    if (auto scope = policy->forward_scope()) scopes->push(std::move(scope));
  }
  return scopes;
}

void PolicySet::before_step() {
  for (const auto& policy : list_) policy->before_step();
}

void PolicySet::after_step() {
  ++use_->steps;
  for (const auto& policy : list_) policy->after_step();
  step_done();
}

std::unique_ptr<WeightExchange> PolicySet::sampling_weights() {
  for (const auto& policy : list_) {
    if (auto weights = policy->sampling_weights()) return weights;
  }
  return nullptr;
}

int64_t PolicySet::period() const {
  int64_t steps = 1;
  for (const auto& policy : list_) steps = std::lcm(steps, policy->period());
  return steps;
}

std::vector<PolicyReport> PolicySet::reports() const {
  std::vector<PolicyReport> all;
  const PolicyOptions order;
  PolicyOptions::tables(order, [&](const char* name, const auto&) {
    for (const auto& policy : list_) {
      if (policy->name() != name) continue;
      all.push_back(policy->report());
      if (!policy->needs_steps() || !use_->steps_forgotten()) continue;
      all.back().active = false;
      all.back().reason =
          "without effect: the policies were told of no optimizer step; call step(optimizer), "
          "or before_step() and after_step() around it";
    }
    for (const PolicyReport& report : off_) {
      if (report.policy == name) all.push_back(report);
    }
  });
  return all;
}

}  // namespace dtk::policies
