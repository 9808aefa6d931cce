#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <dtk/planner/plan_error.h>
#include <dtk/planner/scratch.h>
#include <dtk/policies/internal/event_log.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "core/by_shapes.h"
#include "cost/call_scratch.h"

namespace dtk::planner {
namespace {

using c10::IValue;
using torch::jit::Stack;

at::Tensor with_memory(const at::Tensor& meta) {
  if (!meta.defined()) return meta;
  at::Tensor tensor = at::empty_strided(meta.sizes(), meta.strides(), at::TensorOptions(meta.scalar_type()));
  if (tensor.storage().nbytes() > 0)
    std::memset(tensor.storage().mutable_data(), 0, tensor.storage().nbytes());
  return tensor;
}

// Threads of an operator overlap by luck: what each group of them takes at the most is added up. One thread's
// scratch, also of operators within operators, is what was alive at once.
ScratchBytes scratch_of(const policies::LoggedPhase& call) {
  if (at::get_num_threads() == 1 || call.scratch_of.size() == 1)
    return {call.scratch, call.with_scratch - call.kept.bytes};
  int64_t bytes = 0;
  for (const auto& [label, most] : call.scratch_of) bytes += most;
  return {bytes, bytes};
}

ScratchBytes scratch_of_one(const NotedCall& call) {
  std::vector<IValue> arguments;  // alive until the end, as the call's own would be a gap in its books
  for (const IValue& argument : call.arguments) arguments.push_back(map_tensors(argument, with_memory));
  Stack stack = arguments;
  const auto phases = policies::event_log_of(policies::cpu_accounts(), [&] { call.op.callBoxed(stack); });
  return phases.empty() ? ScratchBytes() : scratch_of(phases.front());
}

}  // namespace

MeasuredScratch measure_scratch(const NotedCalls& calls, const std::function<bool()>& goes_on) {
  constexpr int kTimesWithThreads = 5;
  const int times = at::get_num_threads() > 1 ? kTimesWithThreads : 1;
  const policies::CountingAllocatorGuard counting;
  const at::AutoDispatchBelowADInplaceOrView kernels_only;
  MeasuredScratch measured;
  for (const auto& [name, call] : calls.by_call) {
    ScratchBytes bytes;
    try {
      for (int i = 0; i < times; ++i) {
        if (goes_on && !goes_on()) return measured;
        const ScratchBytes seen = scratch_of_one(call);
        bytes = {std::max(bytes.most, seen.most), std::max(bytes.beside_results, seen.beside_results)};
      }
    } catch (const c10::Error& error) {
      throw PlanError("the scratch of " + name.operation + "(" + name.arguments +
                      ") cannot be measured: " + error.what_without_backtrace());
    }
    measured[name] = bytes;
  }
  return measured;
}

}  // namespace dtk::planner
