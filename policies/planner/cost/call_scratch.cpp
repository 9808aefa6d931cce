#include "cost/call_scratch.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <optional>
#include <unordered_set>
#include <utility>

#include "core/by_shapes.h"

namespace dtk::planner {

enum class WithinCall : uint8_t { nothing, noted, measured };

namespace {

using c10::IValue;
using torch::jit::Stack;

thread_local auto within_here = WithinCall::nothing;

std::string text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  const std::string form = c10::str(tensor.scalar_type(), "[", c10::Join(",", tensor.sizes()), "]");
  return tensor.is_contiguous() ? form : form + ":" + c10::Join(",", tensor.strides());
}

std::string text(const IValue& value) {
  if (value.isTensor()) return text(value.toTensor());
  std::vector<std::string> list;
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(text(tensor));
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector())
      list.push_back(text(tensor.value_or(at::Tensor())));
  } else {
    return value.isGenerator() ? "generator" : c10::str(value);
  }
  return "(" + c10::Join(", ", list) + ")";
}

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

OperatorCall call_of(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments) {
  std::vector<std::string> texts;
  for (const IValue& argument : arguments) texts.push_back(text(argument));
  return {name_of(op), c10::Join(", ", texts)};
}

// For these arguments an operator of kind `open` has a formula, or takes nothing.
bool has_formula(const c10::OperatorHandle& op, const Stack& stack) {
  const std::string& name = op.operator_name().name;
  const c10::ArrayRef<IValue> arguments = arguments_of(op, stack);
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward") {
    const at::ScalarType type = arguments[1].toTensor().scalar_type();
    return type == at::kFloat || type == at::kDouble;  // else oneDNN multiplies, with packed operands
  }
  if (name == "aten::native_layer_norm_backward") {
    const auto mask = arguments.back().toBoolList();
    return !mask[1] && !mask[2];
  }
  return false;
}

}  // namespace

// Not element-wise, and seen to take none: cpu_kernels_test looks at every call of real jobs.
const std::unordered_set<std::string>& operators_without_scratch() {
  static const auto* const names = new std::unordered_set<std::string>{
      "aten::_fused_sdp_choice", "aten::copy_",
      "aten::fill_.Scalar",      "aten::zero_",
      "aten::arange.start_out",  "aten::cat",
      "aten::index_select",      "aten::normal_",
      "aten::uniform_",          "aten::random_.from",
      "aten::native_layer_norm", "aten::_fused_adamw_",
      "aten::_softmax",          "aten::_softmax_backward_data",
  };
  return *names;
}

// A fused operator is known by its gradient, which is an operator too; what either needs beside its results
// is an argument.
bool is_given_its_scratch(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (!name.starts_with("dtk::")) return false;
  return name.find("_backward") != std::string::npos ||
         c10::Dispatcher::singleton().findOp({name + "_backward", ""});
}

ScratchKind scratch_kind(const c10::OperatorHandle& op, bool own) {
  if (is_given_its_scratch(op)) return ScratchKind::none;
  static const std::unordered_set<std::string> open = {
      "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
      "aten::native_layer_norm_backward",
      "aten::_slow_conv2d_forward",
      "aten::_slow_conv2d_backward",
      "aten::mkldnn_convolution",
      "aten::upsample_bilinear2d",
      "aten::_upsample_bicubic2d_aa_backward",
      "aten::convolution_backward"};
  if (op.hasTag(at::Tag::pointwise) || operators_without_scratch().count(name_of(op)) > 0)
    return ScratchKind::none;
  return own && open.count(op.operator_name().name) == 0 ? ScratchKind::formula : ScratchKind::open;
}

ScratchBook& ScratchBook::instance() {
  static auto* const book = new ScratchBook;
  return *book;
}

void ScratchBook::begin(const MeasuredScratch* measured, bool keep_calls) {
  const std::lock_guard lock(mutex_);
  measured_ = measured;
  calls_ = keep_calls ? std::make_shared<NotedCalls>() : nullptr;
  planned_ = {};
  taken_.clear();
}

PlannedScratch ScratchBook::planned() const {
  const std::lock_guard lock(mutex_);
  PlannedScratch planned = planned_;
  planned.measured_calls = static_cast<int64_t>(taken_.size());
  planned.calls = calls_;
  return planned;
}

std::optional<ScratchBytes> ScratchBook::note(const c10::OperatorHandle& op, const Stack& stack, bool known,
                                              bool nested) {
  const std::lock_guard lock(mutex_);
  const auto bytes = measured_ != nullptr || calls_ != nullptr ? measured(op, stack, nested) : std::nullopt;
  if (!bytes && !known) planned_.not_known.insert(op.operator_name().name);
  return bytes;
}

std::optional<ScratchBytes> ScratchBook::measured(const c10::OperatorHandle& op, const Stack& stack,
                                                  bool nested) {
  const c10::ArrayRef<IValue> arguments = arguments_of(op, stack);
  OperatorCall call = call_of(op, arguments);
  if (calls_ != nullptr && !nested) {
    const auto [noted, is_new] = calls_->by_call.try_emplace(call, NotedCall{op, {}});
    if (is_new) {
      for (const IValue& argument : arguments)
        noted->second.arguments.push_back(map_tensors(argument, on_meta));
    }
  }
  if (measured_ == nullptr) return std::nullopt;
  const auto found = measured_->find(call);
  if (found == measured_->end()) return std::nullopt;
  planned_.largest = std::max(planned_.largest, found->second.most);
  taken_.insert(std::move(call));
  return found->second;
}

CallScratch::CallScratch(ScratchKind kind, const c10::OperatorHandle& op, const Stack& stack)
    : outer_(within_here) {
  if (kind == ScratchKind::none || outer_ == WithinCall::measured) return;
  const bool known = kind == ScratchKind::formula || has_formula(op, stack);
  const auto bytes = ScratchBook::instance().note(op, stack, known, outer_ == WithinCall::noted);
  within_here = bytes ? WithinCall::measured : WithinCall::noted;
  if (!bytes) return;
  const auto book = [](int64_t size) { return size > 0 ? at::empty({size}, at::kByte) : at::Tensor(); };
  if (bytes->most > bytes->beside_results) bytes_ = book(bytes->most);
  bytes_.reset();
  bytes_ = book(bytes->beside_results);
}

CallScratch::~CallScratch() {
  within_here = outer_;
}

bool scratch_is_measured() {
  return within_here == WithinCall::measured;
}

}  // namespace dtk::planner
