#include "kernels/cpu_copies.h"

#include <ATen/Context.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/by_shapes.h"

namespace dtk::planner {
namespace {

using at::Tensor;
using Copies = std::vector<Tensor>;
using Names = std::unordered_set<std::string_view>;

// By the configurations of aten/src/ATen/TensorIterator.cpp that the operators are built with.
enum class Family { none, arithmetic, division, comparison, float_function, sum };

Family family_named(std::string_view name) {
  static const auto* const arithmetic =
      new Names{"add",     "sub",         "mul",          "remainder",   "fmod",        "maximum",
                "minimum", "fmax",        "fmin",         "bitwise_and", "bitwise_or",  "hypot",
                "pow",     "bitwise_xor", "logical_or",   "logical_and", "logical_xor", "addcmul",
                "addcdiv", "rsub",        "floor_divide", "copysign",    "nextafter"};
  static const auto* const comparison = new Names{"eq", "ne", "lt", "le", "gt", "ge"};
  static const auto* const functions = new Names{
      "sin",  "cos",   "tan",     "exp",  "exp2", "expm1", "log",  "log2",       "log10",  "log1p",
      "sqrt", "rsqrt", "sigmoid", "tanh", "erf",  "sinh",  "cosh", "reciprocal", "lgamma", "special_erf"};
  if (name == "div" || name == "atan2" || name == "true_divide") return Family::division;
  if (name == "sum") return Family::sum;
  if (arithmetic->count(name) > 0) return Family::arithmetic;
  if (comparison->count(name) > 0) return Family::comparison;
  return functions->count(name) > 0 ? Family::float_function : Family::none;
}

Family family_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<c10::OperatorHandle, Family> cache;
  const auto found = cache.find(op);
  if (found != cache.end()) return found->second;
  std::string_view name = op.operator_name().name;
  Family family = Family::none;
  if (name.starts_with("aten::")) {
    name.remove_prefix(6);
    if (name.ends_with("_")) name.remove_suffix(1);
    family = family_named(name);
    // div.Tensor_mode rounds, and keeps integers.
    if (family == Family::division && op.operator_name().overload_name.find("mode") != std::string::npos)
      family = Family::arithmetic;
  }
  return cache.emplace(op, family).first->second;
}

struct Arguments {
  std::vector<Tensor> inputs;
  Tensor output;  // given by the caller: self of an operator in place, or out
};

Arguments tensors_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  Arguments result;
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!values[i].isTensor() || !values[i].toTensor().defined()) continue;
    if (is_written(arguments[i])) result.output = values[i].toTensor();
    if (arguments[i].name() != "out") result.inputs.push_back(values[i].toTensor());
  }
  return result;
}

at::ScalarType common_type(const std::vector<Tensor>& inputs, Family family) {
  at::native::ResultTypeState state = {};
  for (const Tensor& input : inputs) state = at::native::update_result_type_state(input, state);
  const at::ScalarType type = at::native::result_type(state);
  const bool to_float = family == Family::division || family == Family::float_function;
  return to_float && c10::isIntegralType(type, /*includeBool=*/true) ? c10::get_default_dtype_as_scalartype()
                                                                     : type;
}

// aten/src/ATen/native/ReduceOpsUtils.h, make_reduction()
at::ScalarType summed_type(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                           const Tensor& self) {
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "dtype" && !values[i].isNone()) return values[i].toScalarType();
  }
  const bool integral = c10::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  return integral ? at::kLong : self.scalar_type();
}

// aten/src/ATen/native/ReduceOps.cpp, should_use_acc_buffer(): numbers of half a float's width are summed in
// floats, of a copy, where the dimensions that are summed lie apart, so that not all of a sum is added at
// once.
bool is_summed_in_floats(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const Tensor& self) {
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(stack, arguments.size());
  std::vector<bool> summed(static_cast<size_t>(self.dim()), true);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != "dim" || values[i].isNone() || values[i].toDimVector().empty()) continue;
    summed.assign(summed.size(), false);
    for (const int64_t dim : values[i].toDimVector())
      summed[static_cast<size_t>(dim < 0 ? dim + self.dim() : dim)] = true;
  }
  std::vector<std::pair<int64_t, int64_t>> strides;  // and sizes
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    if (summed[static_cast<size_t>(dim)] && self.size(dim) != 1)
      strides.emplace_back(self.stride(dim), self.size(dim));
  }
  std::sort(strides.begin(), strides.end());
  for (size_t i = 1; i < strides.size(); ++i)
    if (strides[i - 1].first * strides[i - 1].second != strides[i].first) return self.numel() > 0;
  return false;
}

// ---- LinearAlgebra.cpp, addmm_impl_cpu_()

// Rows or columns without gaps and far enough apart for BLAS.
bool blas_takes(const Tensor& matrix, int64_t contiguous, int64_t length) {
  return matrix.stride(contiguous) == 1 && matrix.stride(1 - contiguous) >= std::max<int64_t>(1, length);
}

// The result is new and has rows without gaps, so that the product is computed transposed, unless it is one
// column.
void copy_for_blas(Tensor a, Tensor b, Copies& copies) {
  const int64_t rows = a.size(0), columns = b.size(1), inner = a.size(1);
  if (rows == 0 || columns == 0 || inner == 0) return;
  const bool transposed = columns != 1;
  if (transposed) std::swap(a, b);
  const int64_t m = transposed ? columns : rows, n = transposed ? rows : columns;
  const int64_t first = transposed ? 1 : 0;
  if (!blas_takes(a, first, m) && !blas_takes(a, 1 - first, inner))
    copies.push_back(a.clone(at::MemoryFormat::Contiguous));
  if (!blas_takes(b, first, inner) && !blas_takes(b, 1 - first, n))
    copies.push_back(b.clone(at::MemoryFormat::Contiguous));
}

// ---- mkldnn/Matmul.cpp

bool onednn_multiplies_bf16() {
  static const bool supported = [] {
    const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_is_mkldnn_bf16_supported", ""});
    if (!op) return false;
    torch::jit::Stack stack;
    op->callBoxed(&stack);
    return stack.front().toBool();
  }();
  return supported && at::globalContext().userEnabledMkldnn();
}

bool onednn_takes(const Tensor& t) {
  return t.is_contiguous() ||
         (t.stride(0) == t.size(1) * t.size(2) && t.stride(1) == 1 && t.stride(2) == t.size(1));
}

void copy_for_batches(const Tensor& a, const Tensor& b, Copies& copies) {
  constexpr int64_t kMin = 16 * 16 * 16;  // multiplications, for which oneDNN is asked
  const bool onednn = a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16 &&
                      a.numel() * b.size(2) > kMin && onednn_multiplies_bf16();
  if (!onednn) return;
  for (const Tensor& t : {a, b}) {
    if (!onednn_takes(t)) copies.push_back(t.contiguous());
  }
}

}  // namespace

std::vector<Tensor> copies_in_common_type(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const Family family = family_of(op);
  if (family == Family::none) return {};
  const Arguments arguments = tensors_of(op, stack);
  if (arguments.inputs.empty()) return {};
  const at::ScalarType type = family == Family::sum ? summed_type(op, stack, arguments.inputs.front())
                                                    : common_type(arguments.inputs, family);
  if (type == at::ScalarType::Undefined) return {};
  std::vector<Tensor> copies;
  if (family == Family::sum && c10::isReducedFloatingType(type) &&
      is_summed_in_floats(op, stack, arguments.inputs.front()))
    return {arguments.inputs.front().to(at::kFloat)};
  const bool casts_result = family != Family::comparison && family != Family::sum;
  if (casts_result && arguments.output.defined() && arguments.output.numel() > 0 &&
      arguments.output.scalar_type() != type)
    copies.push_back(at::empty_like(arguments.output, arguments.output.options().dtype(type)));
  for (const Tensor& input : arguments.inputs) {
    if (input.scalar_type() != type) copies.push_back(input.to(type));
  }
  return copies;
}

std::vector<Tensor> copies_for_products(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::string& name = op.operator_name().name;
  Copies copies;
  const size_t count = op.schema().arguments().size();
  const auto argument = [&](size_t i) {
    return (stack.end() - static_cast<std::ptrdiff_t>(count - i))->toTensor();
  };
  if (name == "aten::mm") copy_for_blas(argument(0), argument(1), copies);
  if (name == "aten::addmm") copy_for_blas(argument(1), argument(2), copies);
  if (name == "aten::bmm") copy_for_batches(argument(0), argument(1), copies);
  return copies;
}

}  // namespace dtk::planner
