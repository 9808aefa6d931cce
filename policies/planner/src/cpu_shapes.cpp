#include "cpu_shapes.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dtk/planner/plan_error.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "by_shapes.h"
#include "shape_kernels.h"
#include "stream_order.h"

namespace dtk::planner {
namespace {

using torch::jit::Stack;

// What is to be done with an operator that meets CPU tensors only.
enum class Treatment {
  run,     // makes memory, views or calls other operators, which come here in turn
  shapes,  // a kernel: results by its shape kernel
  own,     // a kernel with a shape kernel of this library
  refuse   // reads values
};

struct Known {
  Treatment treatment = Treatment::run;
  const c10::KernelFunction* kernel = nullptr;
};

bool reads_values(const std::string& name) {
  return name == "aten::_local_scalar_dense" || name == "aten::equal" || name == "aten::is_nonzero" ||
         name == "aten::allclose";
}

// Kernels that only make memory or change what a tensor refers to.
bool makes_memory(const std::string& name) {
  for (const char* prefix : {"aten::empty", "aten::resize", "aten::set_", "aten::_resize"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

Known treatment_of(const c10::OperatorHandle& op) {
  static const auto* const kernels = new CpuKernels(cpu_shape_kernels());
  const std::string name = name_of(op);
  if (reads_values(name)) return {Treatment::refuse};
  if (const auto own = kernels->find(name); own != kernels->end()) return {Treatment::own, &own->second};
  if (makes_memory(name) || makes_views(op)) return {Treatment::run};
  // Composite for the dispatcher, but it moves values.
  const bool kernel = name == "aten::copy_" || op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  return {kernel ? Treatment::shapes : Treatment::run};
}

Known known(const c10::OperatorHandle& op) {
  static auto* const cache = new std::unordered_map<c10::OperatorHandle, Known>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto found = cache->find(op);
  if (found != cache->end()) return found->second;
  return cache->emplace(op, treatment_of(op)).first->second;
}

enum class Where { nowhere, cpu, elsewhere };

void visit(const at::Tensor& tensor, Where& where) {
  if (!tensor.defined()) return;
  if (!tensor.device().is_cpu()) where = Where::elsewhere;
  if (where == Where::nowhere) where = Where::cpu;
}

Where place_of(const c10::OperatorHandle& op, const Stack& stack) {
  Where where = Where::nowhere;
  const size_t count = op.schema().arguments().size();
  for (auto it = stack.end() - static_cast<std::ptrdiff_t>(count); it != stack.end(); ++it) {
    if (it->isTensor()) visit(it->toTensor(), where);
    if (it->isTensorList()) {
      for (const at::Tensor& tensor : it->toTensorVector()) visit(tensor, where);
    }
  }
  return where;
}

// A copy to another device arrives as an operator of both.
bool names_other_device(const c10::OperatorHandle& op, const Stack& stack) {
  const size_t count = op.schema().arguments().size();
  for (auto it = stack.end() - static_cast<std::ptrdiff_t>(count); it != stack.end(); ++it) {
    if (it->isDevice() && !it->toDevice().is_cpu()) return true;
  }
  return false;
}

// A kernel on CPU memory into which the device copies.
void note_host_use(const c10::OperatorHandle& op, const Stack& stack) {
  StreamOrder& order = StreamOrder::instance();
  if (!order.copies_in_flight()) return;
  const size_t count = op.schema().arguments().size();
  for (auto it = stack.end() - static_cast<std::ptrdiff_t>(count); it != stack.end(); ++it) {
    if (!it->isTensor() || !it->toTensor().defined() || it->toTensor().numel() == 0) continue;
    const at::Tensor& tensor = it->toTensor();
    order.host_uses(tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()),
                    op.operator_name().name.c_str());
  }
}

void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto below = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake);
  if (place_of(op, *stack) != Where::cpu || names_other_device(op, *stack)) {
    op.redispatchBoxed(keys & below, stack);
    return;
  }
  const Known what = known(op);
  if (what.treatment != Treatment::run) note_host_use(op, *stack);
  switch (what.treatment) {
    case Treatment::run:
      op.redispatchBoxed(keys & below, stack);
      return;
    case Treatment::own:
      what.kernel->callBoxed(op, keys, stack);
      return;
    case Treatment::shapes:
      run_by_shapes(op, stack, c10::kCPU);
      return;
    case Treatment::refuse:
      throw PlanError(operator_here(name_of(op)) +
                      " reads a value, and a plan has none: what the job does next cannot be known");
  }
}

}  // namespace

void register_cpu_shapes() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::Fake, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&on_operator>());
}

}  // namespace dtk::planner
