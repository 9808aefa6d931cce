#include "toolkit/plan/plan.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <utility>

#include "toolkit/config/rules.h"
#include "toolkit/core/clock.h"
#include "toolkit/core/largest_fit.h"
#include "toolkit/core/numbers.h"
#include "toolkit/device/device.h"
#include "toolkit/plan/alternatives.h"
#include "toolkit/plan/inference.h"
#include "toolkit/plan/plan_text.h"
#include "toolkit/plan/planned_run.h"
#include "toolkit/run/memory_meters.h"
#include "toolkit/run/run.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/precision_choice.h"

namespace dtk {
namespace {

// No budget limits a plan, so what is refused in it is memory of this machine.
PlannedRun planned_here(const LoadedConfig& loaded, c10::Device device,
                        const planner::SimulationOptions& options, int64_t rank) try {
  return loaded.inferred ? plan_inference(loaded, device, options)
                         : plan_run(loaded, device, options, nullptr, rank);
} catch (const c10::OutOfMemoryError& error) {
  throw MachineTooSmall(first_line(error.what_without_backtrace()));
} catch (const std::bad_alloc&) {
  throw MachineTooSmall("out of host memory");
}

Plan plan_decided(LoadedConfig loaded, c10::Device device, const planner::SimulationOptions& options,
                  int64_t rank = 0) {
  const std::optional<ByteSize> budget = loaded.config.memory.budget;
  loaded.config.memory.budget.reset();  // the plan shall say by how much it is exceeded
  PlannedRun run = planned_here(loaded, device, options, rank);
  const planner::SimulationResult& simulated = run.memory;
  Plan plan;
  if (budget) plan.budget = budget->bytes;
  plan.policies = std::move(run.policies);
  plan.memory.device = device;
  plan.memory.phases = simulated.device;
  plan.memory.host = policies::highest(simulated.host);
  plan.terms = simulated.terms;
  if (loaded.ranks > 1 && device.is_cuda())
    plan.terms.push_back({.name = "buffers_of_nccl",
                          .known = false,
                          .formula = "none: a group of NCCL takes buffers when it is made",
                          .source = "not run yet"});
  plan.reserved = simulated.reserved;
  plan.scratch = simulated.scratch;
  plan.folded = simulated.folded;
  plan.step = simulated.steady_step();
  plan.sent = std::move(run.sent);
  plan.rank = rank;
  plan.rank_with_most = run.rank_with_most;
  plan.seconds = simulated.seconds;
  if (!loaded.inferred) plan.data = family_of(loaded.config).planned_note(loaded.config);
  plan.loaded = std::move(loaded);
  return plan;
}

LoadedConfig with_switches(LoadedConfig loaded, c10::Device device, const policies::PolicySwitches& on) {
  loaded.config.policies =
      policies::with_switches(std::move(loaded.config.policies), device, on, loaded.ranks);
  return loaded;
}

int64_t peak_bytes(const Plan& plan) {
  return plan.memory.peak().peak.bytes;
}

// An epoch holds 2^32 - 1 samples at most, and a plan's has a few batches: a larger one is no question of
// memory.
constexpr int64_t kMaxPlannedSamples = int64_t{1} << 28;

int64_t max_samples(const DataOptions& data) {
  return data.samples ? *data.samples - data.validation : kMaxPlannedSamples;
}

}  // namespace

MachineTooSmall::MachineTooSmall(const std::string& what)
    : Error(ExitCode::failure, "this machine cannot hold the plan itself: " + what) {}

MemoryNeed Plan::need_in(Capacity room) const {
  const bool whole = room == Capacity::device;
  // Host memory is the CPU's own. How much of it is taken at the peak is not known: at most all of it.
  return {.peak = memory.peak(),
          .beside = whole ? planner::bytes_beside(terms) : planner::allocated_beside(terms),
          .host = whole && memory.device.is_cpu() ? memory.host.peak.bytes : 0};
}

std::optional<policies::PhasePeak> Plan::runner_up() const {
  const auto highest = memory.peak().peak.items();
  std::vector<policies::PhasePeak> others;
  for (const policies::PhasePeak& phase : memory.phases) {
    if (phase.peak.items() != highest) others.push_back(phase);
  }
  if (others.empty()) return std::nullopt;
  return policies::highest(others);
}

Plan make_plan(LoadedConfig loaded, c10::Device device, const planner::SimulationOptions& options,
               int64_t rank) {
  if (!precision_is_open(loaded.config, device))
    return plan_decided(std::move(loaded), device, options, rank);
  std::vector<Plan> plans;
  std::vector<PossiblePrecision> precisions;
  for (const auto precision : {policies::CpuPrecision::bf16, policies::CpuPrecision::fp32}) {
    LoadedConfig one = loaded;
    one.config.policies.precision.cpu = precision;
    plans.push_back(plan_decided(std::move(one), device, options, rank));
    const policies::PhasePeak peak = plans.back().memory.peak();
    precisions.push_back({precision, peak.peak.bytes, peak.name});
  }
  const double seconds = plans[0].seconds + plans[1].seconds;
  std::stable_sort(plans.begin(), plans.end(),
                   [](const Plan& a, const Plan& b) { return peak_bytes(a) < peak_bytes(b); });
  const auto fits = [](const Plan& one) { return one.need_in(Capacity::allocator).fits(one.budget); };
  const PlannedPrecision of = fits(plans[1])   ? PlannedPrecision::larger
                              : fits(plans[0]) ? PlannedPrecision::only_fitting
                                               : PlannedPrecision::smaller;
  Plan plan = std::move(plans[of == PlannedPrecision::larger ? 1 : 0]);
  plan.seconds = seconds;
  plan.of_precision = of;
  plan.precisions = std::move(precisions);
  return plan;
}

Plan plan_highest_rank(const LoadedConfig& loaded, c10::Device device,
                       const planner::SimulationOptions& options) {
  Plan leader = make_plan(loaded, device, options);
  if (leader.rank_with_most == 0) return leader;
  Plan other = make_plan(loaded, device, options, leader.rank_with_most);
  other.seconds += leader.seconds;
  return peak_bytes(other) > peak_bytes(leader) ? other : leader;
}

std::vector<PlanRow> plan_table(const LoadedConfig& loaded, c10::Device device,
                                const planner::SimulationOptions& options) {
  const size_t kinds = policies::policy_kinds(loaded.ranks).size();
  std::vector<PlanRow> rows(size_t{1} << kinds);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t kind = kinds; kind-- > 0;) rows[i].on.push_back((i >> kind & 1) != 0);
    rows[i].plan = plan_decided(with_switches(loaded, device, rows[i].on), device, options);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const PlanRow& a, const PlanRow& b) {
    return peak_bytes(a.plan) < peak_bytes(b.plan);
  });
  return rows;
}

std::vector<PolicyEffect> explain_policies(const Plan& plan, c10::Device device,
                                           const planner::SimulationOptions& options) {
  const policies::PolicySwitches on =
      policies::switches_of(plan.loaded.config.policies, device, plan.loaded.ranks);
  std::vector<PolicyEffect> effects;
  for (size_t i = 0; i < on.size(); ++i) {
    PolicyEffect effect;
    effect.policy = policies::policy_kinds(plan.loaded.ranks)[i]->name();
    effect.on = on[i];
    policies::PolicySwitches other = on;
    other[i] = !on[i];
    try {
      effect.switched = plan_decided(with_switches(plan.loaded, device, other), device, options, plan.rank);
    } catch (const ConfigError& error) {
      effect.problem = error.what();
    }
    effects.push_back(std::move(effect));
  }
  return effects;
}

LargestPlannedBatch largest_planned_batch(const LoadedConfig& loaded, c10::Device device, int64_t bytes,
                                          const planner::SimulationOptions& options, bool measured) {
  LargestPlannedBatch found;
  found.all_recomputed = placement_is_open(loaded.config);
  const int64_t unit = loaded.config.train.accumulate;
  const auto bytes_of = [&](int64_t units) {
    LoadedConfig one = loaded;
    if (found.all_recomputed) one.config.policies.checkpoint.keep = policies::KeepWord::block;
    one.config.data.batch = units * unit;
    Plan plan = make_plan(one, device, options);
    if (measured && plan.need_in(Capacity::device).fits(bytes)) {
      const Calibration scratch = calibrate_cpu(one, available_bytes());
      plan = make_plan(std::move(one), device, with_calibration(options, scratch));
    }
    ++found.planned;
    const MemoryNeed need = plan.need_in(Capacity::device);
    (need.fits(bytes) ? found.largest : found.next) = std::move(plan);
    return need.bytes();
  };
  // The last that fits and the last that does not are neighbours at the end.
  largest_within(std::max<int64_t>(1, max_samples(loaded.config.data) / unit), bytes, bytes_of);
  return found;
}

}  // namespace dtk
