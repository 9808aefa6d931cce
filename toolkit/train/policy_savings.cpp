#include "toolkit/train/policy_savings.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_kind.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/train/trial_step.h"

namespace dtk {
namespace {

class Trials {
 public:
  Trials(const Trainer& trainer, const RunConfig& config, const policies::PhaseMeter& meter,
         const TrialLimits& limits)
      : trainer_(trainer), config_(config), meter_(meter), limits_(limits) {}

  void measure(PolicySaving& saving) {
    const policies::PolicyKind& policy = policies::policy_kind(saving.report.policy);
    try {
      if (limits_.stop_requested && limits_.stop_requested()) {
        saving.note = "not measured: stopped by a signal";
        return;
      }
      if (!with_all_) with_all_ = peak("trial", config_.policies);
      policies::PolicyOptions without = config_.policies;
      policy.switch_to(without, trainer_.model().device(), false);
      saving.bytes = peak("trial without " + policy.name(), without) - *with_all_;
      if (const auto other = policy.other_setting(config_.policies)) saving.note = compared(*other);
    } catch (const c10::OutOfMemoryError&) {
      saving.note = with_all_ ? "a step without it does not fit" : "no room left for a trial step";
    } catch (const std::bad_alloc&) {
      saving.note = "no room left for a trial step";
    } catch (const std::exception& error) {
      saving.note = "not measured: " + first_line(error.what());
    }
    if (saving.bytes) saving.time = timed(policy);
  }

 private:
  std::string compared(const policies::OtherSetting& setting) {
    const int64_t more = *with_all_ - peak("trial with " + setting.other, setting.options);
    if (more == 0) return fmt::format("{} has the same peak as {}", setting.now, setting.other);
    return fmt::format("{} {} the peak by {} against {}", setting.now, more > 0 ? "raises" : "lowers",
                       readable_bytes(std::abs(more)), setting.other);
  }

  std::unique_ptr<policies::MemoryBudgetGuard> limited() const {
    policies::MemoryAccounts& accounts = policies::cpu_accounts();
    const bool on_cpu = trainer_.model().device().is_cpu();
    const auto available = on_cpu && limits_.available ? limits_.available() : std::nullopt;
    if (!available) return nullptr;
    return std::make_unique<policies::MemoryBudgetGuard>(
        accounts, std::min(accounts.limit(), accounts.live_bytes() + *available / 2));
  }

  int64_t peak(const std::string& phase, const policies::PolicyOptions& options) {
    trainer_.wait_for_data();  // a batch that comes during a step would be in its peak
    const auto limit = limited();
    const policies::PhaseScope scope(phase);
    TrialStep(config_, trainer_.model(), options, samples_at_once(config_)).run();
    const std::vector<policies::PhasePeak> phases = meter_.phases();
    const policies::PhasePeak* const measured = policies::phase_named(phases, phase);
    return measured != nullptr ? measured->peak.bytes : 0;
  }

  // Both have been run, so that neither is the first of its kind. Nothing where one does not fit.
  std::optional<TimedPairs> timed(const policies::PolicyKind& policy) try {
    constexpr size_t kPairs = 5;
    constexpr double kSeconds = 2, kRunSeconds = 10;
    if (!limits_.seconds || limits_.run_seconds < kRunSeconds) return std::nullopt;
    const auto limit = limited();
    const policies::PhaseScope scope("trial");
    policies::PolicyOptions options = config_.policies;
    policy.switch_to(options, trainer_.model().device(), false);
    const int64_t samples = samples_at_once(config_);
    TrialStep with(config_, trainer_.model(), config_.policies, samples),
        without(config_, trainer_.model(), options, samples);
    std::vector<double> more;
    const double begin = limits_.seconds();
    while (more.size() < kPairs && limits_.seconds() - begin < kSeconds) {
      if (limits_.stop_requested && limits_.stop_requested()) break;
      // Who goes first changes, as whoever follows finds the other's caches.
      const bool swaps = more.size() % 2 == 1;
      const double first = seconds_of(swaps ? without : with), second = seconds_of(swaps ? with : without);
      const double taken = swaps ? second : first, plain = swaps ? first : second;
      if (plain <= 0) break;
      more.push_back(taken / plain - 1);
    }
    if (more.empty()) return std::nullopt;
    std::sort(more.begin(), more.end());
    const size_t half = more.size() / 2;
    const double median = more.size() % 2 == 1 ? more[half] : (more[half - 1] + more[half]) / 2;
    return TimedPairs{std::ssize(more), median, more.front(), more.back()};
  } catch (const std::exception&) {
    return std::nullopt;
  }

  double seconds_of(TrialStep& step) const {
    const c10::Device device = trainer_.model().device();
    const double begin = limits_.seconds();
    step.run();
    if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    return limits_.seconds() - begin;
  }

  const Trainer& trainer_;
  const RunConfig& config_;
  const policies::PhaseMeter& meter_;
  const TrialLimits& limits_;
  std::optional<int64_t> with_all_;
};

}  // namespace

std::vector<PolicySaving> measure_savings(const Trainer& trainer, const RunConfig& config,
                                          const policies::PhaseMeter& meter, const TrialLimits& limits) {
  Trials trials(trainer, config, meter, limits);
  std::vector<PolicySaving> savings;
  for (const policies::PolicyReport& report : trainer.policies().reports()) {
    PolicySaving saving{report, std::nullopt, ""};
    if (report.active) {
      if (report.saved_bytes) {
        saving.bytes = report.saved_bytes;
      } else {
        trials.measure(saving);
      }
    }
    savings.push_back(std::move(saving));
  }
  return savings;
}

}  // namespace dtk
