#include <dtk/planner/explain.h>
#include <dtk/policies/internal/counted_blocks.h>
#include <dtk/policies/internal/event_log.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>

#include "explain/bounds.h"
#include "explain/observer.h"

namespace dtk::planner {
namespace {

using policies::Category;
using policies::MemoryAccounts;

// Within its module path, so that what it allocates and saves is known as its own.
policies::Run run_by(const policies::Run& way) {
  return policies::run_observed(
      [way](std::string_view path, const policies::ModuleFn& fn, policies::Tensors&& inputs) {
        const policies::ModulePathScope within(path);
        return way != nullptr ? way(path, fn, std::move(inputs)) : fn(std::move(inputs));
      });
}

}  // namespace

Observed observe(c10::Device device, const std::function<SimulationResult()>& plan) {
  MemoryAccounts& accounts = device.is_cpu() ? policies::cpu_accounts() : policies::device_accounts();
  Observer observer(accounts, device.is_cpu() ? policies::MemoryTier::cpu : policies::MemoryTier::device);
  Observed observed;
  {
    const policies::JobObserverGuard watch(observer);
    const auto events = policies::events_of(accounts, [&] { observed.plan = plan(); });
    observed.largest = largest_parameter(events, accounts.phase_names(), observer.names());
  }
  observer.report(observed);
  return observed;
}

Explanation explain(c10::Device device, const ExplainedJob& job, const ExplainOptions& options) {
  const auto planned = [&](const std::function<void()>& act) {
    return simulate(
        device,
        [&](const EndOfPlan&) {
          const policies::SavedTensorScope ledger(policies::saved_tensor_ledger());
          act();
        },
        options.simulation);
  };
  const auto observed = [&](const policies::Run& way) {
    return observe(device, [&] { return planned([&] { job(run_by(way)); }); });
  };
  Explanation why;
  why.plain = observed(nullptr);
  if (options.recompute != nullptr && why.plain.backward) {
    why.recomputed = observed(options.recompute);
    why.segments = "all of them";
    why.recomputes = options.recomputes;
  }
  for (const auto& [name, other] : options.alternatives) {
    why.alternatives.push_back({name, "", policies::highest(planned(other).device)});
  }
  std::stable_sort(
      why.alternatives.begin(), why.alternatives.end(),
      [](const Alternative& a, const Alternative& b) { return a.peak.peak.bytes < b.peak.peak.bytes; });
  return why;
}

void claim_state(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                 const std::vector<std::pair<std::string, at::Tensor>>& buffers) {
  for (const auto& [name, parameter] : parameters) {
    policies::claim(parameter, parameter.requires_grad() ? Category::parameters : Category::frozen, name);
    policies::claim_gradient_when_written(parameter, name);
  }
  for (const auto& [name, buffer] : buffers)
    policies::claim(buffer, policies::Category::parameters, kBuffersLabel);
}

std::vector<std::pair<std::string, int64_t>> state_of(const Observed& observed) {
  std::vector<std::pair<std::string, int64_t>> state;
  const auto add = [&](const std::string& name, int64_t bytes) {
    if (bytes > 0) state.emplace_back(name, bytes);
  };
  for (int i = 0; i < policies::kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (!is_state(category)) continue;
    int64_t most = 0, buffers = 0;
    for (const policies::PhasePeak& phase : observed.plan.device) {
      most = std::max(most, phase.peak.of(category));
      if (category == Category::parameters)
        buffers = std::max(buffers, phase.peak.items()[category][kBuffersLabel]);
    }
    add(policies::name_of(category), most - buffers);
    add(kBuffersLabel, buffers);
  }
  return state;
}

bool is_state(Category category) {
  switch (category) {
    case Category::casts:
    case Category::saved:
    case Category::offloaded:
    case Category::data:
    case Category::temporaries:
    case Category::scratch:
      return false;
    default:
      return true;
  }
}

LargestAlive largest_alive(const policies::MemorySums& alive) {
  LargestAlive largest;
  for (const auto& [category, labels] : alive.items()) {
    if (is_state(category)) continue;
    const bool by_label =
        category == Category::temporaries || category == Category::scratch || category == Category::data;
    for (const auto& [operation, bytes] : by_label ? labels : alive.by_operator(category)) {
      if (bytes > largest.bytes) largest = {category, operation, bytes};
    }
  }
  return largest;
}

int64_t lowered(const std::vector<policies::PhasePeak>& phases,
                const std::function<int64_t(const policies::PhasePeak&)>& less) {
  int64_t left = 0;
  for (const policies::PhasePeak& phase : phases) left = std::max(left, phase.peak.bytes - less(phase));
  return std::max<int64_t>(0, policies::highest(phases).peak.bytes - left);
}

std::vector<CategoryBound> category_bounds(const std::vector<policies::PhasePeak>& phases) {
  std::vector<CategoryBound> bounds;
  for (int i = 0; i < policies::kCategories; ++i) {
    const auto category = static_cast<policies::Category>(i);
    const int64_t bytes =
        lowered(phases, [&](const policies::PhasePeak& phase) { return phase.peak.of(category); });
    if (bytes > 0) bounds.push_back({category, bytes});
  }
  std::stable_sort(bounds.begin(), bounds.end(),
                   [](const CategoryBound& a, const CategoryBound& b) { return a.bytes > b.bytes; });
  return bounds;
}

}  // namespace dtk::planner
