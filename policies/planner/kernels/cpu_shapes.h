// Operators on CPU tensors by shapes alone, while a thread includes kCpuShapesKey.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace dtk::planner {

/// What is done with an operator that meets CPU tensors only.
enum class Treatment {
  run,     // makes memory, views or calls other operators, which come here in turn
  shapes,  // a kernel: results by its shape kernel
  own,     // a kernel with a shape kernel of this library
  refuse   // reads values
};
/// The operator's arguments end `stack`.
Treatment treatment_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

/// Does that. The operator's arguments end `stack`; its results take their place.
void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Registers the fallback for the process.
void register_cpu_shapes();

}  // namespace dtk::planner
