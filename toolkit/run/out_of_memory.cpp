#include "toolkit/run/out_of_memory.h"

#include <dtk/policies/advice.h>

#include <vector>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/distributed/ranks.h"
#include "toolkit/report/plan_summary.h"
#include "toolkit/run/run.h"
#include "toolkit/train/model_family.h"

namespace dtk {
namespace {

using policies::advise;

constexpr int64_t kFloatBytes = 4;

struct Counts {
  int64_t all = 0, trained = 0;
};

Counts count_parameters(const RunConfig& config) {
  const policies::BudgetExemption exempt;            // there may be no room even for the table of positions
  const auto model = make_model(config, at::kMeta);  // names and shapes only
  Counts counts;
  for (const auto& [name, parameter] : model->parameters()) {
    counts.all += parameter.numel();
    if (parameter.requires_grad()) counts.trained += parameter.numel();
  }
  return counts;
}

std::string state_text(const StateBytes& state) {
  std::vector<std::string> parts = {"parameters " + readable_bytes(state.parameters),
                                    "gradients " + readable_bytes(state.gradients),
                                    "both Adam moments " + readable_bytes(state.moments)};
  if (state.average > 0) parts.push_back("EMA " + readable_bytes(state.average));
  return fmt::format("the state alone takes {} ({})", readable_bytes(state.total()), listed(parts, ", "));
}

// The state is no figure to raise the budget to: a step takes more.
std::string raise_budget(const Shortage& shortage) {
  if (!shortage.needed) return "raise memory.budget (dit-plan says what the whole run takes)";
  const std::string also = ", with room for " + shortage.not_known + " (dit-plan --calibrate measures it)";
  return fmt::format("{} or more{}", policies::advise("memory.budget", toml_text(*shortage.needed)),
                     shortage.not_known.empty() ? "" : also);
}

// What each rank has whole, and need not.
void add_ways_of_ranks(std::vector<std::string>& ways, const RunConfig& config, const Shortage& shortage) {
  if (shortage.ranks > 1 && config.policies.shard.enabled == policies::Enabled::off)
    ways.emplace_back("switch on policies.shard");
  if (shortage.divided_fits) {
    ways.push_back("divide the weights too, which by its plan fits: " +
                   advise("policies.shard.level", toml_text(policies::ShardLevel::parameters)));
  }
}

void add_fewer_samples(std::vector<std::string>& ways, const RunConfig& config, const Shortage& shortage) {
  const int64_t samples = samples_at_once(config);
  const std::optional<StepSize>& most = shortage.fewer.most;
  if (!most && (samples <= 1 || shortage.fewer.is_known)) return;
  std::string way = "lower data.batch or raise train.accumulate";
  if (most) {
    way = advise("data.batch", toml_text(most->batch));
    if (most->accumulate != config.train.accumulate)
      way += " with " + setting("train.accumulate", most->accumulate);
    way += ", which by its plan fits";
    if (shortage.accumulate) {
      way += ", or " + advise("train.accumulate", toml_text(*shortage.accumulate)) +
             ", which by its plan fits and keeps the batch";
    }
  }
  ways.push_back(fmt::format("{} (a pass takes {} samples at a time)", way, samples));
}

std::string state_advice(const RunConfig& config, const Shortage& shortage, const StateBytes& state) {
  const bool resumed = shortage.resumed;
  std::vector<std::string> ways;
  add_ways_of_ranks(ways, config, shortage);
  if (shortage.by_budget) ways.push_back(raise_budget(shortage));
  if (!resumed) ways.push_back("use a smaller model (" + facts_of(config).smaller + ")");
  const bool fits_without_average = shortage.limit && state.total() - state.average <= *shortage.limit;
  if (!resumed && state.average > 0 && fits_without_average) {
    ways.push_back("do without the EMA: " + advise("policies.ema.enabled", "false"));
  }
  if (ways.empty()) ways.emplace_back("continue on a device with more memory");
  return state_text(state) + ", whatever the batch: " + listed(ways, " or ");
}

std::string step_advice(const RunConfig& config, const Shortage& shortage, const StateBytes& state) {
  using policies::Enabled;
  const bool resumed = shortage.resumed;
  std::vector<std::string> ways;
  add_fewer_samples(ways, config, shortage);
  if (config.policies.checkpoint.enabled == Enabled::off) ways.emplace_back("switch on policies.checkpoint");
  if (!resumed && config.policies.attention.enabled == Enabled::off)
    ways.emplace_back("switch on policies.attention");
  if (!resumed && config.policies.precision.enabled == Enabled::off)
    ways.emplace_back("switch on policies.precision");
  add_ways_of_ranks(ways, config, shortage);
  if (shortage.by_budget) ways.push_back(raise_budget(shortage));
  if (!resumed) ways.emplace_back("use a smaller model");
  if (ways.empty()) ways.emplace_back("continue on a device with more memory");
  return fmt::format("the state takes {}, the rest is a step's: {}", readable_bytes(state.total()),
                     listed(ways, " or "));
}

}  // namespace

StateBytes state_bytes(const MemoryReport& plan) {
  const policies::PhasePeak* const complete = policies::phase_named(plan.phases, "optimizer");
  const policies::PhasePeak phase = complete != nullptr ? *complete : plan.peak();
  using policies::Category;
  return {.parameters = phase.peak.of(Category::parameters) + phase.peak.of(Category::frozen),
          .gradients = phase.peak.of(Category::gradients),
          .moments = phase.peak.of(Category::optimizer),
          .average = phase.peak.of(Category::ema)};
}

StateBytes state_bytes(const RunConfig& config, c10::Device device, int64_t ranks) {
  const Counts counts = count_parameters(config);
  const policies::ShardOptions& shard = config.policies.shard;
  const bool divides = ranks > 1 && shard.enabled != policies::Enabled::off;
  const int64_t own = divides ? (counts.trained + ranks - 1) / ranks : counts.trained;
  const bool divides_weights = divides && shard.level == policies::ShardLevel::parameters;
  const policies::EmaOptions& ema = config.policies.ema;
  const bool on_device =
      ema.enabled != policies::Enabled::off && (device.is_cpu() || ema.device == policies::EmaDevice::same);
  return {
      .parameters = kFloatBytes * (counts.all - counts.trained + (divides_weights ? own : counts.trained)),
      .gradients = kFloatBytes * own,
      .moments = 2 * kFloatBytes * own,
      .average = on_device ? kFloatBytes * own : 0};
}

int64_t trainable_parameters(const RunConfig& config) {
  return count_parameters(config).trained;
}

Shortage shortage_of(const c10::OutOfMemoryError& error, const RunConfig& config,
                     const std::optional<MemoryReport>& plan, bool in_build, bool resumed,
                     const Ranks* ranks) {
  Shortage shortage{.resumed = resumed, .in_build = in_build, .ranks = ranks == nullptr ? 1 : ranks->size()};
  if (plan) shortage.state = state_bytes(*plan);
  if (!config.memory.budget) return shortage;
  const int64_t budget = config.memory.budget->bytes;
  const std::optional<policies::RefusedAllocation> refused = refused_by(error);
  // The machine may have less than the budget; of a device's own allocator only the limit set for it is
  // known.
  shortage.by_budget = !refused || refused->bytes > budget - refused->live.bytes;
  if (shortage.by_budget) shortage.limit = budget;
  return shortage;
}

std::string out_of_memory_advice(const RunConfig& config, c10::Device device, const Shortage& shortage) {
  const StateBytes state = shortage.state ? *shortage.state : state_bytes(config, device, shortage.ranks);
  const bool state_is_too_large = shortage.limit ? state.total() > *shortage.limit : shortage.in_build;
  return (state_is_too_large ? state_advice(config, shortage, state) : step_advice(config, shortage, state)) +
         (config.memory.budget ? unit_hint(config.memory.budget->bytes) : "");
}

void throw_if_bare(const c10::OutOfMemoryError& error, const RunConfig& config, const RunObserver& observer) {
  if (observer.wants_bare_errors() && !config.memory.budget) throw error;
}

std::optional<policies::RefusedAllocation> refused_by(const c10::OutOfMemoryError& error) {
  const auto* by_ledger = dynamic_cast<const policies::AllocationRefused*>(&error);
  if (by_ledger == nullptr) return std::nullopt;
  return by_ledger->refused;
}

std::optional<MemoryReport> report_with_refusal(const MemoryMeters& meters,
                                                const c10::OutOfMemoryError& error) {
  std::optional<MemoryReport> report = meters.report();
  if (report) report->refused = refused_by(error);
  return report;
}

Error out_of_memory(const c10::OutOfMemoryError& error, const std::string& advice,
                    const std::function<void()>& write) {
  std::string text = first_line(error.what_without_backtrace()) + "; " + advice;
  try {
    write();
  } catch (const std::exception& problem) {
    text += "; memory.json or report.html could not be written: " + first_line(problem.what());
  }
  return {ExitCode::memory, text};
}

}  // namespace dtk
