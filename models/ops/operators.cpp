#include "ops/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <initializer_list>
#include <utility>

#include "ops/cpu_kernels.h"

namespace dtk::ops {
namespace {

using at::Tensor;

at::ScalarType sum_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// ---- what the operators take

void check_same_shape(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef sizes,
                      const Tensor& like) {
  TORCH_CHECK(tensor.sizes() == sizes && tensor.device() == like.device(), op, ": ", name, " is ",
              tensor.sizes(), " on ", tensor.device(), "; allowed beside x ", like.sizes(), " on ",
              like.device(), ": ", sizes, " there");
}

// Kernels read rows of (N, D) wherever they begin, and all else without gaps.
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

void check_types(const char* op, bool taken, const Types& types, const char* row, const char* other) {
  TORCH_CHECK(
      taken, op, ": x ", types.x, ", ", row, " ", types.row, ", ", other, " ", types.other,
      " is no combination of types that it takes; allowed: all of one type, or x Float with half ones "
      "beside it (dtk/models/ops.h)");
}

void check_norm_modulate(const Tensor& x, const Tensor& shift, const Tensor& scale, at::ScalarType type) {
  constexpr const char* kName = "dtk::norm_modulate";
  check_tokens(kName, x);
  check_same_shape(kName, "shift", shift, {x.size(0), x.size(2)}, x);
  check_same_shape(kName, "scale", scale, {x.size(0), x.size(2)}, x);
  TORCH_CHECK(shift.scalar_type() == scale.scalar_type(), kName, ": shift is ", shift.scalar_type(),
              ", scale ", scale.scalar_type(), "; allowed: one type");
  const Types types{x.scalar_type(), scale.scalar_type(), type};
  check_types(kName, takes_norm_modulate(types), types, "shift and scale", "result");
  check_dense(kName, {{"x", &x}});
  check_rows(kName, "shift", shift);
  check_rows(kName, "scale", scale);
}

void check_gated_add(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  constexpr const char* kName = "dtk::gated_add";
  check_tokens(kName, x);
  check_same_shape(kName, "gate", gate, {x.size(0), x.size(2)}, x);
  check_same_shape(kName, "branch", branch, x.sizes(), x);
  const Types types{x.scalar_type(), gate.scalar_type(), branch.scalar_type()};
  check_types(kName, takes_gated_add(types), types, "gate", "branch");
  check_dense(kName, {{"x", &x}, {"branch", &branch}});
  check_rows(kName, "gate", gate);
}

void check_bias_gelu(const Tensor& x, const Tensor& bias) {
  constexpr const char* kName = "dtk::bias_gelu";
  TORCH_CHECK(x.dim() > 0 && x.size(-1) > 0, kName, ": x is ", x.sizes(), "; allowed: (..., D) with D > 0");
  check_same_shape(kName, "bias", bias, {x.size(-1)}, x);
  const Types types{x.scalar_type(), bias.scalar_type(), x.scalar_type()};
  check_types(kName, takes_bias_gelu(types), types, "bias", "result");
  check_dense(kName, {{"x", &x}, {"bias", &bias}});
}

// Of backward: what forward took, and what comes with it.
void check_norm_modulate_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                  const Tensor& scale, const Tensor& partial) {
  constexpr const char* kName = "dtk::norm_modulate_backward";
  check_norm_modulate(x, scale, scale, dy.scalar_type());
  check_same_shape(kName, "dy", dy, x.sizes(), x);
  check_same_shape(kName, "mean", mean, {x.size(0), x.size(1)}, x);
  check_same_shape(kName, "rstd", rstd, {x.size(0), x.size(1)}, x);
  check_dense(kName, {{"dy", &dy}, {"mean", &mean}, {"rstd", &rstd}});
  check_partial(kName, partial, {x.size(0), partials_of(x.size(1)), 2, x.size(2)}, x);
}
void check_gated_add_backward(const Tensor& dy, const Tensor& gate, const Tensor& branch,
                              const Tensor& partial) {
  check_gated_add(dy, gate, branch);
  check_partial("dtk::gated_add_backward", partial, {dy.size(0), partials_of(dy.size(1)), 1, dy.size(2)}, dy);
}
void check_bias_gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& partial) {
  constexpr const char* kName = "dtk::bias_gelu_backward";
  check_bias_gelu(x, bias);
  check_same_shape(kName, "dy", dy, x.sizes(), x);
  check_dense(kName, {{"dy", &dy}});
  TORCH_CHECK(dy.scalar_type() == x.scalar_type(), kName, ": dy is ", dy.scalar_type(), ", x ",
              x.scalar_type(), "; allowed: one type");
  check_partial(kName, partial, {partials_of(x.numel() / x.size(-1)), x.size(-1)}, x);
}

// ---- shapes: of results, and so of what is computed nowhere

Three norm_modulate_shapes(const Tensor& x, const Tensor& shift, const Tensor& scale, double,
                           at::ScalarType type) {
  check_norm_modulate(x, shift, scale, type);
  const auto statistics = x.options().dtype(sum_type(x));
  return {at::empty(x.sizes(), x.options().dtype(type)), at::empty({x.size(0), x.size(1)}, statistics),
          at::empty({x.size(0), x.size(1)}, statistics)};
}
Three norm_modulate_backward_shapes(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                    const Tensor& scale, const Tensor& partial) {
  check_norm_modulate_backward(dy, x, mean, rstd, scale, partial);
  return {at::empty(x.sizes(), x.options()), at::empty(scale.sizes(), scale.options()),
          at::empty(scale.sizes(), scale.options())};
}
Tensor gated_add_shapes(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  check_gated_add(x, gate, branch);
  return at::empty(x.sizes(), x.options());
}
Two gated_add_backward_shapes(const Tensor& dy, const Tensor& gate, const Tensor& branch,
                              const Tensor& partial) {
  check_gated_add_backward(dy, gate, branch, partial);
  return {at::empty(gate.sizes(), gate.options()), at::empty(branch.sizes(), branch.options())};
}
Tensor bias_gelu_shapes(const Tensor& x, const Tensor& bias) {
  check_bias_gelu(x, bias);
  return at::empty(x.sizes(), x.options());
}
Two bias_gelu_backward_shapes(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& partial) {
  check_bias_gelu_backward(dy, x, bias, partial);
  return {at::empty(x.sizes(), x.options()), at::empty(bias.sizes(), bias.options())};
}

// ---- CPU

Shape shape_of(const Tensor& x) {
  return {x.size(0), x.size(1), x.size(2)};
}
Shape rows_of(const Tensor& x) {
  return {1, x.numel() / x.size(-1), x.size(-1)};
}
Rows rows(const Tensor& x) {
  return {x.const_data_ptr(), x.stride(0)};
}

Three norm_modulate_on_cpu(const Tensor& x, const Tensor& shift, const Tensor& scale, double eps,
                           at::ScalarType type) {
  Three out = norm_modulate_shapes(x, shift, scale, eps, type);
  auto& [y, mean, rstd] = out;
  cpu_kernels().norm_modulate(shape_of(x), {x.scalar_type(), scale.scalar_type(), type}, x.const_data_ptr(),
                              rows(shift), rows(scale), eps, y.mutable_data_ptr(), mean.mutable_data_ptr(),
                              rstd.mutable_data_ptr());
  return out;
}
Three norm_modulate_backward_on_cpu(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                    const Tensor& scale, const Tensor& partial) {
  Three out = norm_modulate_backward_shapes(dy, x, mean, rstd, scale, partial);
  auto& [dx, dshift, dscale] = out;
  cpu_kernels().norm_modulate_backward(shape_of(x), {x.scalar_type(), scale.scalar_type(), dy.scalar_type()},
                                       dy.const_data_ptr(), x.const_data_ptr(), mean.const_data_ptr(),
                                       rstd.const_data_ptr(), rows(scale), partial.mutable_data_ptr(),
                                       dx.mutable_data_ptr(), dshift.mutable_data_ptr(),
                                       dscale.mutable_data_ptr());
  return out;
}
Tensor gated_add_on_cpu(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  Tensor y = gated_add_shapes(x, gate, branch);
  cpu_kernels().gated_add(shape_of(x), {x.scalar_type(), gate.scalar_type(), branch.scalar_type()},
                          x.const_data_ptr(), rows(gate), branch.const_data_ptr(), y.mutable_data_ptr());
  return y;
}
Two gated_add_backward_on_cpu(const Tensor& dy, const Tensor& gate, const Tensor& branch,
                              const Tensor& partial) {
  Two out = gated_add_backward_shapes(dy, gate, branch, partial);
  auto& [dgate, dbranch] = out;
  cpu_kernels().gated_add_backward(shape_of(dy), {dy.scalar_type(), gate.scalar_type(), branch.scalar_type()},
                                   dy.const_data_ptr(), rows(gate), branch.const_data_ptr(),
                                   partial.mutable_data_ptr(), dgate.mutable_data_ptr(),
                                   dbranch.mutable_data_ptr());
  return out;
}
Tensor bias_gelu_on_cpu(const Tensor& x, const Tensor& bias) {
  Tensor y = bias_gelu_shapes(x, bias);
  cpu_kernels().bias_gelu(rows_of(x), {x.scalar_type(), bias.scalar_type(), x.scalar_type()},
                          x.const_data_ptr(), bias.const_data_ptr(), y.mutable_data_ptr());
  return y;
}
Two bias_gelu_backward_on_cpu(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& partial) {
  Two out = bias_gelu_backward_shapes(dy, x, bias, partial);
  auto& [dx, dbias] = out;
  cpu_kernels().bias_gelu_backward(rows_of(x), {x.scalar_type(), bias.scalar_type(), x.scalar_type()},
                                   dy.const_data_ptr(), x.const_data_ptr(), bias.const_data_ptr(),
                                   partial.mutable_data_ptr(), dx.mutable_data_ptr(),
                                   dbias.mutable_data_ptr());
  return out;
}

TORCH_LIBRARY_FRAGMENT(dtk, library) {
  library.def(
      "norm_modulate(Tensor x, Tensor shift, Tensor scale, float eps, ScalarType type) -> (Tensor, "
      "Tensor, Tensor)");
  library.def(
      "norm_modulate_backward(Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor scale, Tensor(a!) "
      "partial) "
      "-> (Tensor, Tensor, Tensor)");
  library.def("gated_add(Tensor x, Tensor gate, Tensor branch) -> Tensor");
  library.def(
      "gated_add_backward(Tensor dy, Tensor gate, Tensor branch, Tensor(a!) partial) -> (Tensor, Tensor)");
  library.def("bias_gelu(Tensor x, Tensor bias) -> Tensor");
  library.def("bias_gelu_backward(Tensor dy, Tensor x, Tensor bias, Tensor(a!) partial) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(dtk, CPU, library) {
  library.impl("norm_modulate", &norm_modulate_on_cpu);
  library.impl("norm_modulate_backward", &norm_modulate_backward_on_cpu);
  library.impl("gated_add", &gated_add_on_cpu);
  library.impl("gated_add_backward", &gated_add_backward_on_cpu);
  library.impl("bias_gelu", &bias_gelu_on_cpu);
  library.impl("bias_gelu_backward", &bias_gelu_backward_on_cpu);
}
TORCH_LIBRARY_IMPL(dtk, Meta, library) {
  library.impl("norm_modulate", &norm_modulate_shapes);
  library.impl("norm_modulate_backward", &norm_modulate_backward_shapes);
  library.impl("gated_add", &gated_add_shapes);
  library.impl("gated_add_backward", &gated_add_backward_shapes);
  library.impl("bias_gelu", &bias_gelu_shapes);
  library.impl("bias_gelu_backward", &bias_gelu_backward_shapes);
}

template <class Function>
c10::TypedOperatorHandle<Function> operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

Tensor partial_sums(const Tensor& x, at::IntArrayRef sizes) {
  return at::empty(sizes, x.options().dtype(sum_type(x)));
}

}  // namespace

Three norm_modulate_forward(const Tensor& x, const Tensor& shift, const Tensor& scale, double eps,
                            at::ScalarType type) {
  static const auto op = operator_of<decltype(norm_modulate_shapes)>("dtk::norm_modulate");
  // The CPU's kernels and the shapes check for themselves.
  if (x.is_cuda() || shift.is_cuda() || scale.is_cuda()) check_norm_modulate(x, shift, scale, type);
  return op.call(x, shift, scale, eps, type);
}

Three norm_modulate_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                             const Tensor& scale) {
  static const auto op = operator_of<decltype(norm_modulate_backward_shapes)>("dtk::norm_modulate_backward");
  return op.call(dy, x, mean, rstd, scale,
                 partial_sums(x, {x.size(0), partials_of(x.size(1)), 2, x.size(2)}));
}

Tensor gated_add_forward(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  static const auto op = operator_of<decltype(gated_add_shapes)>("dtk::gated_add");
  if (x.is_cuda() || gate.is_cuda() || branch.is_cuda()) check_gated_add(x, gate, branch);
  return op.call(x, gate, branch);
}

Two gated_add_backward(const Tensor& dy, const Tensor& gate, const Tensor& branch) {
  static const auto op = operator_of<decltype(gated_add_backward_shapes)>("dtk::gated_add_backward");
  return op.call(dy, gate, branch, partial_sums(dy, {dy.size(0), partials_of(dy.size(1)), 1, dy.size(2)}));
}

Tensor bias_gelu_forward(const Tensor& x, const Tensor& bias) {
  static const auto op = operator_of<decltype(bias_gelu_shapes)>("dtk::bias_gelu");
  if (x.is_cuda() || bias.is_cuda()) check_bias_gelu(x, bias);
  return op.call(x, bias);
}

Two bias_gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& bias) {
  static const auto op = operator_of<decltype(bias_gelu_backward_shapes)>("dtk::bias_gelu_backward");
  return op.call(dy, x, bias, partial_sums(x, {partials_of(x.numel() / x.size(-1)), x.size(-1)}));
}

}  // namespace dtk::ops
