#include <ATen/core/grad_mode.h>
#include <dtk/policies/internal/job_observer.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/policies/shards.h>
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

// What ranks share out is laid out before there are policies.
void check_ranks(const PolicyOptions& options, const Subject& subject) {
  if (!subject.training) return;
  const bool is_off = options.shard.enabled == Enabled::off;
  const int64_t prefetch = options.shard.prefetch;
  if (!is_off && prefetch != ShardOptions().prefetch && options.shard.level == ShardLevel::optimizer) {
    throw PolicyError("policies.shard.prefetch",
                      " = " + std::to_string(prefetch) +
                          " has no effect: weights are gathered before their use where policies.shard.level "
                          "= \"parameters\"; set that, or remove it");
  }
  const bool sends_bf16 = !is_off && options.shard.gather == ShardGather::bf16;
  if (sends_bf16 && options.shard.level == ShardLevel::optimizer) {
    throw PolicyError("policies.shard.gather",
                      " = \"bf16\" has no effect: weights are gathered before their use where "
                      "policies.shard.level = \"parameters\"; set that, or remove it");
  }
  if (subject.shards != nullptr && subject.shards->ranks() > 1) {
    if (!is_off && options.shard.level == ShardLevel::automatic) {
      throw PolicyError("policies.shard.level",
                        " = \"auto\" is chosen before there are policies, by a plan; set \"optimizer\" or "
                        "\"parameters\"");
    }
    const bool wanted = options.shard.level == ShardLevel::parameters;
    if (!is_off && subject.shards->divides() && subject.shards->divides_weights() != wanted) {
      throw PolicyError("policies.shard.level",
                        " = \"" + text_of(options.shard.level) + "\", and Subject::shards divides " +
                            (wanted ? "no weights; lay them out with level = parameters"
                                    : "weights; lay them out with level = optimizer"));
    }
    if (subject.shards->divides_weights() && (subject.shards->sends() == ShardGather::bf16) != sends_bf16) {
      throw PolicyError("policies.shard.gather", " = \"" + text_of(options.shard.gather) +
                                                     "\", and Subject::shards sends weights as " +
                                                     text_of(subject.shards->sends()) +
                                                     "; lay them out with the same");
    }
    if (subject.shards->divides() != is_off) return;
    throw PolicyError(
        "policies.shard.enabled",
        subject.shards->divides()
            ? " = false, and Subject::shards divides the parameters; lay them out with divides = false"
            : " is not false, and Subject::shards divides nothing; lay them out with divides = true");
  }
  for (const PolicyKind* const kind : policy_kinds()) {
    if (kind->acts_alone() || kind->enabled(options) != Enabled::on) continue;
    const std::string key = "policies." + kind->name() + ".enabled";
    throw PolicyError(
        key,
        " = true has no effect where one rank trains alone; start several ranks, or leave it at \"default\"");
  }
}

// Of a training, whose options may well be those of its results' use too.
void check_training(const PolicyOptions& options) {
  for (const PolicyKind* const kind : inference_kinds()) {
    if (kind->acts_in_training() || kind->enabled(options) != Enabled::on) continue;
    throw PolicyError(
        "policies." + kind->name() + ".enabled",
        " = true has no effect in a training: it acts in passes without gradient of a model that "
        "is trained; leave it at \"default\", by which it does so");
  }
}

}  // namespace

PolicySet::PolicySet(const PolicyOptions& options, const Subject& subject, Seam& seam,
                     std::unique_ptr<StagingCopies> engine)
    : engine_(std::make_unique<SavedTensorEngineGuard>()),
      use_(std::make_shared<SeamUse>()),
      kinds_(subject.training ? policy_kinds(subject.shards == nullptr ? 1 : subject.shards->ranks())
                              : inference_kinds()) {
  check_ranks(options, subject);
  if (subject.training) check_training(options);
  use_->paths.insert(subject.paths.begin(), subject.paths.end());
  for (const auto& [name, parameter] : subject.parameters) {
    if (!parameter.requires_grad()) mark_frozen(parameter);
  }
  Seam changed = seam;  // what is refused leaves the seam as it was
  changed.run = [inner = std::move(changed.run), named = run_with_module_path()](
                    std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    const ModuleFn within = [&](Tensors&& in) { return inner(path, fn, std::move(in)); };
    return named(path, within, std::move(inputs));
  };
  for (const PolicyKind* const kind : kinds_) {
    if (kind->enabled(options) == Enabled::off && !kind->acts_switched_off()) {
      off_.push_back({kind->name(), false, "switched off: policies." + kind->name() + ".enabled = false"});
    } else {
      list_.push_back(kind->make(options, subject, engine));
    }
  }
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

void PolicySet::reserve_for_skipping() {
  for (const auto& policy : list_) policy->reserve_for_skipping();
}

void PolicySet::after_step() {
  ++use_->steps;
  for (const auto& policy : list_) policy->after_step();
  step_done();
}

void PolicySet::after_step_unless(const at::Tensor& skipped) {
  ++use_->steps;
  for (const auto& policy : list_) policy->after_step_unless(skipped);
  step_done();
}

std::unique_ptr<WeightExchange> PolicySet::sampling_weights() {
  std::unique_ptr<WeightExchange> weights;
  for (const auto& policy : list_)
    if (weights == nullptr) weights = policy->sampling_weights();
  for (const auto& policy : list_) weights = policy->around(std::move(weights));
  return weights;
}

int64_t PolicySet::period() const {
  int64_t steps = 1;
  for (const auto& policy : list_) steps = std::lcm(steps, policy->period());
  return steps;
}

std::vector<PolicyReport> PolicySet::reports() const {
  std::vector<PolicyReport> all;
  for (const PolicyKind* const kind : kinds_) {
    const std::string name = kind->name();
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
  }
  return all;
}

}  // namespace dtk::policies
