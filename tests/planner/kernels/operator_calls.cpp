#include "planner/kernels/operator_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <dtk/policies/internal/event_log.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/library.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/by_shapes.h"
#include "cost/call_scratch.h"
#include "kernels/cpu_shapes.h"

namespace dtk::test {
namespace {

using policies::MemoryEvent;

// Bytes of the storages that a call made: by where it did, "kept" for those that outlive it.
using Storages = std::map<std::string, std::multiset<int64_t>>;

Seen seen;
thread_local bool within_call = false;

// Without scratch, which has its own place in the books.
Storages storages_of(const std::vector<MemoryEvent>& events) {
  std::map<uint64_t, std::pair<std::string, int64_t>> born;
  std::set<uint64_t> scratch;
  Storages storages;
  for (const MemoryEvent& event : events) {
    if (event.kind == MemoryEvent::Kind::birth && event.to.category == policies::Category::temporaries)
      born[event.serial] = {policies::owner_of(event.to).label, event.bytes};
    if (event.kind == MemoryEvent::Kind::scratch) scratch.insert(event.serial);
    const auto block = born.find(event.serial);
    if (event.kind != MemoryEvent::Kind::death || block == born.end()) continue;
    if (scratch.count(event.serial) == 0) storages[block->second.first].insert(block->second.second);
    born.erase(block);
  }
  for (const auto& [serial, block] : born) storages["kept"].insert(block.second);
  return storages;
}

std::string text(const Storages& storages) {
  std::string line;
  for (const auto& [place, sizes] : storages) {
    line += " " + place;
    for (const int64_t bytes : sizes) line += " " + std::to_string(bytes);
  }
  return line.empty() ? " nothing" : line;
}

// The most alive at once.
int64_t scratch_in(const std::vector<MemoryEvent>& events) {
  const auto phases = policies::event_log(events, policies::cpu_accounts().phase_names());
  return phases.empty() ? 0 : phases.front().scratch;
}

// `call` takes the arguments from the stack and leaves its results.
Storages storages_made(torch::jit::Stack& stack, const std::function<void(torch::jit::Stack*)>& call,
                       int64_t* scratch = nullptr) {
  policies::cpu_accounts().start_event_log();
  try {
    call(&stack);
  } catch (...) {
    policies::cpu_accounts().stop_event_log();
    throw;
  }
  const std::vector<MemoryEvent> events = policies::cpu_accounts().stop_event_log();
  if (scratch != nullptr) *scratch = scratch_in(events);
  return storages_of(events);
}

// An empty tensor that the operator will give its size is another one.
torch::jit::Stack arguments_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  torch::jit::Stack copy(stack.end() - static_cast<std::ptrdiff_t>(arguments.size()), stack.end());
  for (size_t i = 0; i < copy.size(); ++i) {
    const bool written = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    if (written && copy[i].isTensor() && copy[i].toTensor().numel() == 0)
      copy[i] = at::empty_like(copy[i].toTensor());
  }
  return copy;
}

// Types, sizes and strides: by them the next operator decides what it makes.
std::string results_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::ostringstream line;
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().returns().size())) {
    if (!value.isTensor()) continue;
    const at::Tensor& result = value.toTensor();
    line << " ";
    if (result.defined())
      line << result.scalar_type() << result.sizes() << ":" << result.strides();
    else
      line << "none";
  }
  return line.str();
}

struct CallScope {
  CallScope() { within_call = true; }
  ~CallScope() { within_call = false; }
};

void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, policies::kCpuShapesKey);
  const planner::Treatment treatment = planner::treatment_of(op, *stack);
  if (within_call || (treatment != planner::Treatment::shapes && treatment != planner::Treatment::own)) {
    op.redispatchBoxed(keys & below, stack);
    return;
  }
  const CallScope scope;
  const std::string name = planner::name_of(op);
  seen.operators.insert(name);
  torch::jit::Stack copy = arguments_of(op, *stack);
  int64_t scratch = 0, planned_scratch = 0;
  const Storages planned = storages_made(
      copy, [&](torch::jit::Stack* arguments) { planner::run_on_cpu(op, keys, arguments); },
      &planned_scratch);
  const std::string planned_results = results_of(op, copy);
  copy.clear();
  const Storages made = storages_made(
      *stack, [&](torch::jit::Stack* arguments) { op.redispatchBoxed(keys & below, arguments); }, &scratch);
  const std::string results = results_of(op, *stack);
  if (planned_results != results)
    seen.different[name + " results"] = "planned" + planned_results + "; made" + results;
  seen.scratch[name] = std::max(seen.scratch[name], scratch);
  const bool open =
      planner::scratch_kind(op, treatment == planner::Treatment::own) == planner::ScratchKind::open;
  if (!open && scratch != planned_scratch) {
    seen.different[name + " scratch"] =
        "planned " + std::to_string(planned_scratch) + "; made " + std::to_string(scratch);
  }
  if (planned != made) seen.different[name] = "planned" + text(planned) + "; made" + text(made);
}

}  // namespace

Seen look_at(const std::function<void()>& job) {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "_", policies::kCpuShapesKey, __FILE__, __LINE__);
  static const bool once = [] {
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&on_operator>());
    return true;
  }();
  static_cast<void>(once);
  seen = {};
  const policies::CountingAllocatorGuard counting;
  const c10::impl::IncludeDispatchKeyGuard recording(policies::kCpuShapesKey);
  job();
  return seen;
}

std::string differences(const Seen& result) {
  std::string lines;
  for (const auto& [op, what] : result.different) lines += op + ": " + what + "\n";
  return lines;
}

}  // namespace dtk::test
