#include "core/by_shapes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dtk/planner/plan_error.h>
#include <dtk/policies/internal/dispatch_keys.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace dtk::planner {
namespace {

using c10::IValue;
using torch::jit::Stack;

at::Tensor on_device(const at::Tensor& shape, c10::Device device) {
  return at::empty_strided(shape.sizes(), shape.strides(),
                           at::TensorOptions().dtype(shape.scalar_type()).device(device));
}

// As the operator would: code that asks whether numbers were drawn gets the right answer.
void draw_once(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, c10::Device device) {
  const bool makes_tensor = !op.schema().returns().empty() &&
                            op.schema().returns().front().type()->isSubtypeOf(*c10::TensorType::get());
  // A choice of a kernel that may draw draws nothing.
  if (!makes_tensor || !op.hasTag(at::Tag::nondeterministic_seeded)) return;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  for (const IValue& argument : arguments) {
    if (argument.isGenerator() && argument.toGenerator().defined()) generator = argument.toGenerator();
  }
  auto* const drawn = dynamic_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
  if (drawn == nullptr) return;
  const std::lock_guard lock(generator.mutex());
  drawn->random();
}

// An operator that only writes to tensors it was given, all of which have their size already.
bool leaves_as_it_is(const c10::FunctionSchema& schema, const std::vector<IValue>& arguments, Stack* stack) {
  std::vector<IValue> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(schema.arguments()[i])) continue;
    if (arguments[i].isTensor() && arguments[i].toTensor().numel() == 0) return false;
    written.push_back(arguments[i]);
  }
  const std::vector<c10::Argument>& results = schema.returns();
  if (written.empty() || results.size() > written.size()) return false;
  if (!std::all_of(results.begin(), results.end(), is_written)) return false;
  stack->insert(stack->end(), written.begin(), written.begin() + static_cast<std::ptrdiff_t>(results.size()));
  return true;
}

// Translates tensors to Meta and back.
class MetaCall {
 public:
  explicit MetaCall(c10::Device device) : device_(device) {}

  IValue to_meta(const IValue& value) {
    if (value.isDevice()) return c10::Device(c10::kMeta);
    return map_tensors(value, [this](const at::Tensor& tensor) { return to_meta(tensor); });
  }

  IValue from_meta(const IValue& value) const {
    if (value.isTensor()) return from_meta(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(from_meta(tensor));
    return list;
  }

 private:
  at::Tensor to_meta(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != device_.type()) return tensor;
    at::Tensor meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    // Decides on the type of results.
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
      meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    originals_[meta.unsafeGetTensorImpl()] = tensor;
    return meta;
  }

  at::Tensor from_meta(const at::Tensor& meta) const {
    if (!meta.defined() || !meta.is_meta()) return meta;
    const auto found = originals_.find(meta.unsafeGetTensorImpl());
    if (found == originals_.end()) return on_device(meta, device_);
    const at::Tensor& original = found->second;
    if (!original.sizes().equals(meta.sizes())) give_size(original, meta);
    return original;
  }

  // As an out= operator does with an empty result tensor.
  static void give_size(const at::Tensor& original, const at::Tensor& meta) {
    const at::Tensor sized = on_device(meta, original.device());
    c10::TensorImpl* const tensor = original.unsafeGetTensorImpl();
    tensor->set_storage_keep_dtype(sized.storage());
    tensor->set_sizes_and_strides(sized.sizes(), sized.strides());
  }

  const c10::Device device_;
  std::map<const c10::TensorImpl*, at::Tensor> originals_;
};

std::string registration(const c10::OperatorHandle& op, const std::string& key) {
  const std::string name = name_of(op);
  const size_t colons = name.find("::");
  return "TORCH_LIBRARY_IMPL(" + name.substr(0, colons) + ", " + key + ", m) with m.impl(\"" +
         name.substr(colons + 2) + "\", ...)";
}

bool is_mask(const IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const at::ScalarType type = value.toTensor().scalar_type();
  return type == at::kBool || type == at::kByte;
}

// Indexing is one of them for masks only.
bool shape_depends_on_values(const c10::OperatorHandle& op, const std::vector<IValue>& arguments) {
  if (!op.hasTag(at::Tag::dynamic_output_shape)) return false;
  if (op.operator_name().name != "aten::index") return true;
  for (const auto& index : arguments[1].toOptionalTensorVector()) {
    if (index && is_mask(*index)) return true;
  }
  return false;
}

// A body of other operators serves as well: they have shape kernels.
std::optional<c10::DispatchKey> shape_kernel(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  for (const DispatchKey key :
       {DispatchKey::Meta, DispatchKey::CompositeExplicitAutogradNonFunctional,
        DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) return key;
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const c10::OperatorHandle& op, const std::string& reason) {
  throw PlanError(operator_here(name_of(op)) + " cannot be planned: " + reason);
}

}  // namespace

std::string name_of(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool reads_values(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::data_dependent_output);
}

bool makes_views(const c10::OperatorHandle& op) {
  for (const c10::Argument& result : op.schema().returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

void check_memory(c10::ArrayRef<IValue> arguments) {
  const auto check = [](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) tensor.storage().data_ptr();  // throws where there is none
  };
  for (const IValue& argument : arguments) {
    if (argument.isTensor()) check(argument.toTensor());
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& tensor : argument.toTensorVector()) check(tensor);
  }
}

void run_by_shapes(const c10::OperatorHandle& op, Stack* stack, c10::Device device) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  check_memory(arguments);
  torch::jit::drop(*stack, count);
  draw_once(op, arguments, device);
  if (leaves_as_it_is(schema, arguments, stack)) return;
  if (makes_views(op)) {
    refuse(op, "it makes a view and has no kernel of the simulated device; register one for every device: " +
                   registration(op, "CompositeExplicitAutograd"));
  }
  if (reads_values(op)) refuse_reading(name_of(op));
  if (shape_depends_on_values(op, arguments))
    refuse(op, "the shape of its result depends on values, and a plan has none");
  const std::optional<c10::DispatchKey> key = shape_kernel(op);
  if (!key) refuse(op, "no shape kernel is registered; register one: " + registration(op, "Meta"));
  MetaCall call(device);
  for (const IValue& argument : arguments) stack->push_back(call.to_meta(argument));
  try {
    const c10::impl::ExcludeDispatchKeyGuard shapes_only(policies::kCpuShapesKey);
    op.callBoxedForDispatchKey(*key, *stack);
  } catch (const c10::Error& error) {
    refuse(op, std::string("its shape kernel says: ") + error.what_without_backtrace());
  }
  const size_t results = schema.returns().size();
  const std::vector<IValue> returned(stack->end() - static_cast<std::ptrdiff_t>(results), stack->end());
  torch::jit::drop(*stack, results);
  for (const IValue& value : returned) stack->push_back(call.from_meta(value));
}

}  // namespace dtk::planner
