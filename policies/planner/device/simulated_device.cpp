#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <dtk/planner/plan_error.h>
#include <dtk/planner/simulated_device.h>
#include <dtk/planner/torch_versions.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <dtk/policies/simulation.h>
#include <torch/library.h>

#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/by_shapes.h"
#include "core/stream_order.h"
#include "cost/call_scratch.h"
#include "cost/kernel_needs.h"
#include "cost/reduction_scratch.h"
#include "device/device_memory.h"
#include "device/device_runtime.h"
#include "kernels/attention_choice.h"
#include "kernels/cpu_shapes.h"
#include "kernels/shape_kernels.h"

namespace dtk::planner {
namespace {

using at::Tensor;

const c10::Device kSimulated(c10::kCUDA, 0);
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

// Tells the order of streams what the operator does with one of its arguments.
void note_use(const Tensor& tensor, bool written, const char* what) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.numel() == 0) return;
  MemoryUse& use = SimulatedMemory::instance().use_of(*tensor.unsafeGetTensorImpl());
  StreamOrder& order = StreamOrder::instance();
  written ? order.writes(use, current_stream(), what) : order.reads(use, current_stream(), what);
}

void note_uses(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const char* const name = op.operator_name().name.c_str();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    if (!value.isTensor() && !value.isTensorList()) continue;
    const bool written = is_written(arguments[i]);
    if (value.isTensor()) {
      note_use(value.toTensor(), written, name);
    } else {
      for (const Tensor& tensor : value.toTensorList()) note_use(tensor, written, name);
    }
  }
}

bool all_contiguous(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  bool contiguous = true;
  for (const c10::IValue& argument : arguments_of(op, stack)) {
    map_tensors(argument, [&](const Tensor& tensor) {
      contiguous = contiguous && (!tensor.defined() || tensor.is_contiguous());
      return tensor;
    });
  }
  return contiguous;
}

// By the sources of its kernel on CUDA a call takes nothing for itself.
bool takes_nothing(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  static const std::unordered_set<std::string> in_any_layout = {
      "aten::gelu",    "aten::gelu_backward", "aten::threshold_backward",
      "aten::fill_",   "aten::zero_",         "aten::masked_fill_",
      "aten::normal_", "aten::uniform_",      "aten::random_",
      "aten::arange",  "aten::bernoulli_",    "aten::gather",
      "aten::cat"};
  static const std::unordered_set<std::string> if_contiguous = {
      "aten::index_select", "aten::_softmax",      "aten::_softmax_backward_data",
      "aten::_log_softmax", "aten::_fused_adamw_", "aten::_log_softmax_backward_data"};
  const std::string& name = op.operator_name().name;
  if (is_given_its_scratch(op) || op.hasTag(at::Tag::pointwise) || in_any_layout.count(name) > 0) return true;
  return if_contiguous.count(name) > 0 && all_contiguous(op, stack);
}

void by_shapes(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  note_uses(op, *stack);
  KernelNeeds& needs = KernelNeeds::instance();
  const auto reduction = reduction_scratch(op, *stack, needs.options());
  if (!reduction && !takes_nothing(op, *stack)) needs.unknown_scratch(op.operator_name().name);
  std::vector<Tensor> scratch;  // while the kernel runs
  if (reduction && needs.options().reduction_scratch) {
    needs.reduction_scratch(reduction->bytes());
    for (const int64_t bytes : {reduction->converted, reduction->buffer, reduction->semaphores}) {
      if (bytes > 0) scratch.push_back(at::empty({bytes}, at::TensorOptions(at::kByte).device(kSimulated)));
    }
  }
  run_by_shapes(op, stack, kSimulated);
}

void product(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const bool adds = op.operator_name().name == "aten::addmm";
  const Workspaces taken = KernelNeeds::instance().product(current_stream(), adds);
  for (const int64_t bytes : {taken.cublas, taken.cublas_lt}) {
    if (bytes > 0) SimulatedMemory::instance().take_for_good(bytes);
  }
  note_uses(op, *stack);
  run_by_shapes(op, stack, kSimulated);
}

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &SimulatedMemory::instance(), kKeys, c10::dtype_or_default(type),
                                   format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &SimulatedMemory::instance(), kKeys,
                                           c10::dtype_or_default(type));
}

// Only between the device and page-locked memory does a copy go on beside the host.
void note_copy(const Tensor& self, const Tensor& source, bool non_blocking) {
  note_use(source, false, "aten::copy_");
  note_use(self, true, "aten::copy_");
  if ((self.is_cuda() && source.is_cuda()) || self.numel() == 0) return;
  StreamOrder& order = StreamOrder::instance();
  const void* const of_host = self.is_cuda() ? source.const_data_ptr() : self.const_data_ptr();
  if (!non_blocking || !PinnedMemory::instance().holds(of_host)) {
    order.synchronize(current_stream());
  } else if (!self.is_cuda()) {
    order.writes_host(of_host, static_cast<int64_t>(self.nbytes()), current_stream());
  }
}

// The temporaries are those of aten/src/ATen/native/cuda/Copy.cu.
Tensor& copy(Tensor& self, const Tensor& source, bool non_blocking) {
  if (self.is_cpu() && !policies::HostCopyScope::active()) {
    throw PlanError(operator_here("aten::copy_") +
                    " copies values to the host, and a plan has none: what the job does next cannot be "
                    "known; where the values are only kept or shown, hold a policies::HostCopyScope, and "
                    "read what steers the job between steps with policies::values_sync()");
  }
  note_copy(self, source, non_blocking);
  const bool same_device = self.device() == source.device();
  const bool same_type = self.scalar_type() == source.scalar_type();
  if (same_device || (same_type && self.is_contiguous() && source.is_contiguous())) return self;
  Tensor contiguous_self, contiguous_source;
  if (self.is_cuda()) {
    if (!self.is_contiguous()) contiguous_self = at::empty_like(self, at::MemoryFormat::Contiguous);
    contiguous_source = source.to(self.scalar_type()).expand_as(self).contiguous();
  } else {
    if (!self.is_contiguous() || !same_type)
      contiguous_self = at::empty_like(self, self.options().dtype(source.scalar_type()));
    contiguous_source = source.expand_as(self).contiguous();
  }
  return self;
}

at::Scalar local_scalar(const Tensor&) {
  refuse_reading("aten::_local_scalar_dense");
}

const Tensor& resize(const Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  c10::TensorImpl* const tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(sizes);
  const auto needed = static_cast<size_t>(tensor->storage_offset() + tensor->numel()) * tensor->itemsize();
  c10::StorageImpl* const storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) {
    storage->set_data_ptr_noswap(SimulatedMemory::instance().allocate(needed));
    storage->set_nbytes(needed);
  }
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef sizes,
                    at::IntArrayRef strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return self;
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor as_strided(const Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                  std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

// Has this LibTorch the operator, and no kernel of it for the device yet?
bool lacks_kernel(const std::string& name) {
  const size_t dot = name.find('.', name.find("::"));
  const auto op = c10::Dispatcher::singleton().findOp(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  return op && !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA);
}

torch::Library* kernels_of(const std::string& name_space) {
  auto* library =
      new torch::Library(torch::Library::IMPL, name_space, c10::DispatchKey::CUDA, __FILE__, __LINE__);
  return library;
}

void register_kernels() {
  static auto* const fallback =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&by_shapes>());
  torch::Library* const aten = kernels_of("aten");
  aten->impl("empty.memory_format", &empty);
  aten->impl("empty_strided", &empty_strided);
  aten->impl("copy_", &copy);
  aten->impl("_local_scalar_dense", &local_scalar);
  aten->impl("resize_", &resize);
  aten->impl("set_.source_Storage_storage_offset", &set_storage);
  aten->impl("set_.source_Tensor", &set_tensor);
  aten->impl("as_strided", &as_strided);
  aten->impl("view", &at::native::view);
  aten->impl("_reshape_alias", &at::native::_reshape_alias);
  aten->impl("unfold", &at::native::unfold);
  register_cuda_shape_kernels(*aten);
  for (const char* name : {"mm.out", "addmm.out", "bmm.out", "baddbmm.out"})
    aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&product>());
  std::map<std::string, torch::Library*> libraries{{"aten", aten}};
  for (const std::string name : composite_cuda_operators()) {
    if (!lacks_kernel(name)) continue;
    const std::string space = name.substr(0, name.find("::"));
    torch::Library*& library = libraries[space];
    if (library == nullptr) library = kernels_of(space);
    library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&by_shapes>());
  }
}

}  // namespace

void register_simulated_devices() {
  static const bool once = [] {
    const std::string unknown = unplanned_torch();
    if (!unknown.empty()) throw PlanError(unknown);
    if (at::CUDAHooksRegistry()->Has("CUDAHooks")) {
      throw PlanError(
          "libtorch_cuda is loaded in this process, so no CUDA device can be simulated in it; plan in a "
          "process that does not load it");
    }
    const std::string conflict = policies::dispatch_key_conflict(policies::KeyUser::planner);
    if (!conflict.empty()) throw PlanError(conflict);
    register_simulated_runtime();
    register_kernels();
    register_attention_choice();
    register_cpu_shapes();
    return true;
  }();
  static_cast<void>(once);
}

void require_simulated_cuda() {
  if (at::detail::getCUDAHooks().hasCUDA()) return;
  throw PlanError(
      "this process asked LibTorch for CUDA before there was a simulated device, as at::manual_seed() and a "
      "first "
      "backward pass do, and LibTorch keeps the answer that there is none; call "
      "planner::register_simulated_devices() first of all in main()");
}

ShapesOnlyScope::ShapesOnlyScope() : guard_(policies::kCpuShapesKey) {}
ShapesOnlyScope::~ShapesOnlyScope() = default;

}  // namespace dtk::planner
