#include "cost/reduction_scratch.h"

#include <ATen/TensorIterator.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/stack.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "core/by_shapes.h"

namespace dtk::planner {
namespace {

using at::TensorIterator;
using at::TensorIteratorBase;

int64_t divided_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t power_of_two_below(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

// Never read: an iterator looks at sizes and strides.
at::Tensor shaped(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  alignas(16) static constexpr char kNothing[16] = {};
  return at::from_blob(const_cast<char*>(kNothing), sizes, strides, at::TensorOptions(type));
}

// How many neighbouring results a thread makes. The memory of a tensor that is no view is aligned.
int64_t results_of_a_thread(const TensorIteratorBase& iterator, int64_t element) {
  int64_t results = 4;
  const auto make_divide = [&](int64_t n) {
    while (n % results != 0) results /= 2;
  };
  const auto output = static_cast<size_t>(iterator.num_reduce_dims());
  make_divide(iterator.shape()[output]);
  for (size_t i = 0; i < iterator.strides(1).size(); ++i) {
    if (i != output) make_divide(iterator.strides(1)[i] / element);
  }
  return results;
}

ReductionScratch of_launch(const TensorIteratorBase& iterator, int64_t accumulated, int64_t element,
                           const DeviceTermOptions& options) {
  constexpr int64_t kMaxThreads = 512, kWarp = 32, kVector = 4, kMinValues = 16, kMaxValues = 256;
  const int64_t outputs = iterator.num_output_elements(), inputs = iterator.numel() / outputs;
  const auto strides = iterator.strides(1);
  const auto reduced = static_cast<size_t>(iterator.num_reduce_dims());
  const bool along_inputs =
      iterator.ndim() == 0 || iterator.num_reduce_dims() == iterator.ndim() || strides[0] < strides[reduced];
  int64_t across = along_inputs ? inputs : outputs, down = along_inputs ? outputs : inputs, results = 1;
  if (iterator.ndim() == 0) across = down = 1;
  const int64_t nearest = iterator.ndim() == 0 ? element : (along_inputs ? strides[0] : strides[reduced]);
  if (nearest == element && along_inputs && across >= 128 && iterator.num_reduce_dims() == 1) {
    across /= kVector;
  } else if (nearest == element && !along_inputs) {
    results = results_of_a_thread(iterator, element);
    across /= results;
  }
  const int64_t threads_at_most = kMaxThreads / results;
  const auto power = [&](int64_t n) { return n < threads_at_most ? power_of_two_below(n) : threads_at_most; };
  const int64_t height = std::min(power(down), threads_at_most / std::min(power(across), kWarp));
  const int64_t width = std::min(power(across), threads_at_most / height);

  int64_t step_input = along_inputs ? width : 1, step_output = along_inputs ? 1 : width;
  const auto of_a_thread = [&] { return divided_up(inputs, step_input); };
  const bool splits_column = of_a_thread() >= std::min(height * 16, kMaxValues);
  (splits_column ? step_input : step_output) *= height;
  const int64_t blocks_at_once =
      options.multiprocessors * (options.threads_per_multiprocessor / (width * height));
  const int64_t grid = divided_up(outputs / results, step_output);
  if (!splits_column || of_a_thread() < kMaxValues || grid > blocks_at_once) return {};
  const int64_t parts =
      std::max(std::min(divided_up(blocks_at_once, grid), divided_up(of_a_thread(), kMinValues)),
               divided_up(of_a_thread(), kMaxValues));
  if (parts <= 1) return {};
  return {.buffer = accumulated * outputs * parts * (along_inputs ? 1 : width * results),
          .semaphores = 4 * grid};
}

}  // namespace

ReductionScratch reduction_scratch(const at::Tensor& input, at::IntArrayRef dimensions, at::ScalarType type,
                                   const DeviceTermOptions& options) {
  if (input.numel() == 0) return {};
  const at::ScalarType from = input.scalar_type();
  const bool widens = type == at::kFloat && (from == at::kHalf || from == at::kBFloat16);
  const bool converts = from != type && !widens;
  const at::ScalarType read = converts ? type : from;
  const auto element = static_cast<int64_t>(c10::elementSize(read));
  const int64_t accumulated =
      read == at::kHalf || read == at::kBFloat16 ? 4 : static_cast<int64_t>(c10::elementSize(type));

  const auto mask = at::dim_list_to_bitset(
      dimensions.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dimensions), input.dim());
  // The result as the iterator gets it: of the input's sizes, with stride 0 where it is one number.
  at::DimVector strides(input.dim(), 0);
  int64_t stride = 1;
  for (int64_t i = input.dim() - 1; i >= 0; --i) {
    if (mask[static_cast<size_t>(i)]) continue;
    strides[static_cast<size_t>(i)] = stride;
    stride *= input.size(i);
  }
  at::Tensor result = shaped(input.sizes(), strides, read);
  const auto packed = c10::contiguous_strides(input.sizes());
  const at::Tensor in = shaped(input.sizes(), converts ? at::IntArrayRef(packed) : input.strides(), read);
  TensorIterator iterator = TensorIterator::reduce_op(result, in);

  ReductionScratch largest;
  const auto look = [&](const TensorIteratorBase& part) {
    const ReductionScratch scratch = of_launch(part, accumulated, element, options);
    if (scratch.bytes() > largest.bytes()) largest = scratch;
  };
  if (iterator.can_use_32bit_indexing()) {
    look(iterator);
  } else {
    for (auto& part : iterator.with_32bit_indexing()) look(part);
    // The parts of a sum in half precision are added up in fp32.
    if (type == read && c10::isReducedFloatingType(read))
      largest.buffer += accumulated * iterator.num_output_elements();
  }
  if (converts) largest.converted = input.numel() * element;
  return largest;
}

std::optional<ReductionScratch> reduction_scratch(const c10::OperatorHandle& op,
                                                  const torch::jit::Stack& stack,
                                                  const DeviceTermOptions& options) {
  const std::string& name = op.operator_name().name;
  if (name != "aten::sum" && name != "aten::mean") return std::nullopt;
  // (self, [dim, keepdim,] dtype [, out]); by names of dimensions there is no kernel.
  const c10::ArrayRef<c10::IValue> arguments = arguments_of(op, stack);
  const at::Tensor& input = arguments[0].toTensor();
  const c10::IValue& last = arguments.back();
  const bool whole = at::isIntegralType(input.scalar_type(), /*includeBool=*/true);
  const at::ScalarType type = last.isTensor() ? last.toTensor().scalar_type()
                              : last.isInt()  ? last.toScalarType()
                              : whole         ? at::kLong
                                              : input.scalar_type();
  std::vector<int64_t> over;
  if (arguments[1].isIntList()) over = arguments[1].toIntVector();
  return reduction_scratch(input, over, type, options);
}

}  // namespace dtk::planner
