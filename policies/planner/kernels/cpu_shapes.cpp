#include "kernels/cpu_shapes.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dtk/planner/plan_error.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/by_shapes.h"
#include "core/stream_order.h"
#include "cost/call_scratch.h"
#include "cost/flop_meter.h"
#include "cost/operator_flops.h"
#include "kernels/cpu_copies.h"
#include "kernels/shape_kernels.h"

namespace dtk::planner {
namespace {

using torch::jit::Stack;

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, policies::kCpuShapesKey);

struct Known {
  Treatment treatment = Treatment::run;
  const CpuKernel* kernel = nullptr;
  FlopRule flops = nullptr;
  ScratchKind scratch = ScratchKind::none;  // of a kernel
};

// Kernels that only make memory or change what a tensor refers to.
bool makes_memory(const std::string& name) {
  for (const char* prefix : {"aten::empty", "aten::resize", "aten::set_", "aten::_resize"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Kernels that only call another operator, and have no shape kernel.
bool calls_another(const std::string& name) {
  return name == "aten::relu" || name == "aten::relu_";
}

Known on_cpu_tensors(const c10::OperatorHandle& op) {
  static const auto* const kernels = new CpuKernels(cpu_shape_kernels());
  const std::string name = name_of(op);
  if (reads_values(op)) return {Treatment::refuse};
  if (const auto own = kernels->find(name); own != kernels->end()) return {Treatment::own, &own->second};
  if (makes_memory(name) || makes_views(op) || calls_another(name)) return {Treatment::run};
  // Composite for the dispatcher, but it moves values.
  const bool kernel = name == "aten::copy_" || op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  return {kernel ? Treatment::shapes : Treatment::run};
}

// Asked for each operator call: a thread keeps its own, without a lock.
const Known& known(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<c10::OperatorHandle, Known> cache;
  const auto found = cache.find(op);
  if (found != cache.end()) return found->second;
  Known what = on_cpu_tensors(op);
  what.flops = flop_rule(op);
  if (what.treatment == Treatment::own || what.treatment == Treatment::shapes)
    what.scratch = scratch_kind(op, what.treatment == Treatment::own);
  return cache.emplace(op, what).first->second;
}

Treatment treatment(const Known& what, const c10::OperatorHandle& op, const Stack& stack) {
  if (what.kernel == nullptr || what.kernel->takes == nullptr) return what.treatment;
  return what.kernel->takes(arguments_of(op, stack)) ? what.treatment : Treatment::run;
}

enum class Where { nowhere, cpu, elsewhere };

void visit(const at::Tensor& tensor, Where& where) {
  if (!tensor.defined()) return;
  if (!tensor.device().is_cpu()) where = Where::elsewhere;
  if (where == Where::nowhere) where = Where::cpu;
}

Where location_of(const c10::OperatorHandle& op, const Stack& stack) {
  Where where = Where::nowhere;
  for (const c10::IValue& value : arguments_of(op, stack)) {
    if (value.isTensor()) visit(value.toTensor(), where);
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorList()) visit(tensor, where);
    }
  }
  return where;
}

// A copy to another device arrives as an operator of both.
bool names_other_device(const c10::OperatorHandle& op, const Stack& stack) {
  for (const c10::IValue& value : arguments_of(op, stack)) {
    if (value.isDevice() && !value.toDevice().is_cpu()) return true;
  }
  return false;
}

// A kernel on CPU memory into which the device copies.
void note_host_use(const c10::OperatorHandle& op, const Stack& stack) {
  StreamOrder& order = StreamOrder::instance();
  if (!order.copies_in_flight()) return;
  for (const c10::IValue& value : arguments_of(op, stack)) {
    if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().numel() == 0) continue;
    const at::Tensor& tensor = value.toTensor();
    order.host_uses(tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()),
                    op.operator_name().name.c_str());
  }
}

void do_it(const Known& what, const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const Treatment how = treatment(what, op, *stack);
  if (how != Treatment::run) note_host_use(op, *stack);
  if (how == Treatment::own) check_memory(arguments_of(op, *stack));
  switch (how) {
    case Treatment::run:
      op.redispatchBoxed(keys & kBelow, stack);
      return;
    case Treatment::own: {
      const std::vector<at::Tensor> temporaries = copies_in_common_type(op, *stack);
      const CallScratch scratch(what.scratch, op, *stack);
      what.kernel->shapes.callBoxed(op, keys, stack);
      return;
    }
    case Treatment::shapes: {
      std::vector<at::Tensor> temporaries = copies_in_common_type(op, *stack);
      if (temporaries.empty()) temporaries = copies_for_products(op, *stack);
      const CallScratch scratch(what.scratch, op, *stack);
      run_by_shapes(op, stack, c10::kCPU);
      return;
    }
    case Treatment::refuse:
      refuse_reading(name_of(op));
  }
}

// Operators on other devices pass here too, and are counted.
void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const Known& what = known(op);
  std::optional<CountedOperatorScope> counted;
  if (what.flops != nullptr) counted.emplace(what.flops, arguments_of(op, *stack));
  if (location_of(op, *stack) != Where::cpu || names_other_device(op, *stack)) {
    op.redispatchBoxed(keys & kBelow, stack);
  } else {
    do_it(what, op, keys, stack);
  }
}

}  // namespace

Treatment treatment_of(const c10::OperatorHandle& op, const Stack& stack) {
  return treatment(known(op), op, stack);
}

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  do_it(known(op), op, keys, stack);
}

void register_cpu_shapes() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "_", policies::kCpuShapesKey, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&on_operator>());
}

}  // namespace dtk::planner
