// What the files of single operators have in common: checks of what kernels read, registration, autograd.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <initializer_list>
#include <utility>

#include "ops/cpu_kernels.h"

namespace dtk::ops {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Of the operator dtk::`name`, whose functions have the types of those that make its shapes.
template <class Function>
c10::TypedOperatorHandle<Function> operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

/// What sums are made in.
at::ScalarType sum_type(const Tensor& x);
/// Empty, of sum_type.
Tensor partial_sums(const Tensor& x, at::IntArrayRef sizes);
/// Of those over the rows of x (..., D).
inline std::array<int64_t, 2> partial_sizes_of_rows(const Tensor& x) {
  return {partials_of(x.numel() / x.size(-1)), x.size(-1)};
}

void check_same_shape(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef sizes,
                      const Tensor& like);
/// Kernels read rows of (N, D) wherever they begin, and all else without gaps.
void check_dense(const char* op, std::initializer_list<std::pair<const char*, const Tensor*>> tensors);
void check_rows(const char* op, const char* name, const Tensor& rows);
void check_partial(const char* op, const Tensor& partial, at::IntArrayRef sizes, const Tensor& x);
/// (N, T, D), and (..., D).
void check_tokens(const char* op, const Tensor& x);
void check_channels(const char* op, const char* name, const Tensor& x);
/// `row` and `other` are what the messages call Types' fields.
void check_types(const char* op, bool taken, const Types& types, const char* row, const char* other);

/// Gradients of gradients would be undefined ones, and LibTorch would say nothing.
void refuse_second_derivative(const char* op);

/// Of a chunk of a wider buffer the rows are apart; other forms are copied.
Tensor with_dense_rows(const Tensor& rows);

inline Shape shape_of(const Tensor& x) {
  return {x.size(0), x.size(1), x.size(2)};
}
/// (..., D) as the rows of one sample.
inline Shape rows_of(const Tensor& x) {
  return {1, x.numel() / x.size(-1), x.size(-1)};
}
inline Rows rows(const Tensor& x) {
  return {x.const_data_ptr(), x.stride(0)};
}

}  // namespace dtk::ops
