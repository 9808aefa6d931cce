// Runs one operator by the shapes of its arguments alone.
#pragma once
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <optional>
#include <string>

namespace dtk::planner {

/// The operator's arguments, which lie on top of the stack. Refers to it.
inline c10::ArrayRef<c10::IValue> arguments_of(const c10::OperatorHandle& op,
                                               const torch::jit::Stack& stack) {
  return torch::jit::last(stack, op.schema().arguments().size());
}

/// `value` with `map` of each tensor in it, in lists too; any other value as it is.
template <class Map>
c10::IValue map_tensors(const c10::IValue& value, const Map& map) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(map(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional<at::Tensor>(map(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

/// "aten::add.Tensor"
std::string name_of(const c10::OperatorHandle& op);

/// True for what the operator writes to: self of an operator in place, or out.
bool is_written(const c10::Argument& argument);

/// True for item(), equal() and the like: a value comes back that is no tensor.
bool reads_values(const c10::OperatorHandle& op);

/// True if a result may alias an argument without being written to: a view.
bool makes_views(const c10::OperatorHandle& op);

/// Throws c10::Error if a tensor's memory is at another rank.
void check_memory(c10::ArrayRef<c10::IValue> arguments);

/// Takes the operator's arguments from the stack and leaves its results: what it writes to as it is, or
/// resized where it was empty; new tensors of the sizes, strides and types that the operator's Meta kernel
/// gives, with storage on `device` and without a value. Throws PlanError for an operator without a Meta
/// kernel, one whose shape depends on values, and a view; c10::Error as check_memory().
void run_by_shapes(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::Device device);

}  // namespace dtk::planner
