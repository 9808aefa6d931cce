#include "ops/operator.h"

#include <ATen/core/grad_mode.h>

namespace dtk::ops {

at::ScalarType sum_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor partial_sums(const Tensor& x, at::IntArrayRef sizes) {
  return at::empty(sizes, x.options().dtype(sum_type(x)));
}

void check_same_shape(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef sizes,
                      const Tensor& like) {
  TORCH_CHECK(tensor.sizes() == sizes && tensor.device() == like.device(), op, ": ", name, " is ",
              tensor.sizes(), " on ", tensor.device(), "; allowed beside x ", like.sizes(), " on ",
              like.device(), ": ", sizes, " there");
}

void check_dense(const char* op, std::initializer_list<std::pair<const char*, const Tensor*>> tensors) {
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK(tensor->is_contiguous(), op, ": ", name, " has gaps, strides ", tensor->strides(),
                "; allowed: contiguous ones");
  }
}

void check_rows(const char* op, const char* name, const Tensor& rows) {
  TORCH_CHECK(rows.stride(1) == 1 || rows.size(1) == 1, op, ": ", name, " has strides ", rows.strides(),
              "; allowed: rows without gaps");
}

void check_partial(const char* op, const Tensor& partial, at::IntArrayRef sizes, const Tensor& x) {
  check_same_shape(op, "partial", partial, sizes, x);
  check_dense(op, {{"partial", &partial}});
  TORCH_CHECK(partial.scalar_type() == sum_type(x), op, ": partial is ", partial.scalar_type(),
              "; allowed: ", sum_type(x));
}

void check_tokens(const char* op, const Tensor& x) {
  TORCH_CHECK(x.dim() == 3 && x.size(2) > 0, op, ": x is ", x.sizes(), "; allowed: (N, T, D) with D > 0");
}

void check_channels(const char* op, const char* name, const Tensor& x) {
  TORCH_CHECK(x.dim() > 0 && x.size(-1) > 0, op, ": ", name, " is ", x.sizes(),
              "; allowed: (..., D) with D > 0");
}

void check_types(const char* op, bool taken, const Types& types, const char* row, const char* other) {
  TORCH_CHECK(
      taken, op, ": x ", types.x, ", ", row, " ", types.row, ", ", other, " ", types.other,
      " is no combination of types that it takes; allowed: all of one type, or x Float with half ones "
      "beside it (dtk/models/ops.h)");
}

void refuse_second_derivative(const char* op) {
  TORCH_CHECK(!at::GradMode::is_enabled(), op,
              " has no second derivative: backward was called with create_graph; call LibTorch's operators "
              "there (policies.fusion.enabled = false)");
}

Tensor with_dense_rows(const Tensor& rows) {
  return rows.dim() == 2 && rows.stride(1) == 1 ? rows : rows.contiguous();
}

}  // namespace dtk::ops
