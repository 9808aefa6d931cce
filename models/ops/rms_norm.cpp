#include <dtk/models/ops.h>

#include "ops/operator.h"
#include "ops/operators.h"

namespace dtk::ops {
namespace {

at::DimVector rms_norm_rows(const Tensor& x) {
  return at::DimVector(x.sizes().begin(), x.sizes().end() - 1);
}

void check_rms_norm(const Tensor& x, const Tensor& weight, at::ScalarType type) {
  constexpr const char* kName = "dtk::rms_norm";
  check_channels(kName, "x", x);
  check_same_shape(kName, "weight", weight, {x.size(-1)}, x);
  const Types types{x.scalar_type(), weight.scalar_type(), type};
  check_types(kName, takes_rms_norm(types), types, "weight", "result");
  check_dense(kName, {{"x", &x}, {"weight", &weight}});
}

// No rows of partial: the weight takes no gradient.
void check_rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& rstd, const Tensor& weight,
                             const Tensor& partial) {
  constexpr const char* kName = "dtk::rms_norm_backward";
  check_rms_norm(x, weight, dy.scalar_type());
  check_same_shape(kName, "dy", dy, x.sizes(), x);
  check_same_shape(kName, "rstd", rstd, rms_norm_rows(x), x);
  check_dense(kName, {{"dy", &dy}, {"rstd", &rstd}});
  auto sizes = partial_sizes_of_rows(x);
  if (partial.dim() > 0 && partial.size(0) == 0) sizes[0] = 0;
  check_partial(kName, partial, sizes, x);
}

Two rms_norm_shapes(const Tensor& x, const Tensor& weight, double, at::ScalarType type) {
  check_rms_norm(x, weight, type);
  return {at::empty(x.sizes(), x.options().dtype(type)),
          at::empty(rms_norm_rows(x), x.options().dtype(sum_type(x)))};
}
Two rms_norm_backward_shapes(const Tensor& dy, const Tensor& x, const Tensor& rstd, const Tensor& weight,
                             const Tensor& partial) {
  check_rms_norm_backward(dy, x, rstd, weight, partial);
  return {at::empty(x.sizes(), x.options()),
          partial.numel() > 0 ? at::empty(weight.sizes(), weight.options()) : Tensor()};
}

Two rms_norm_on_cpu(const Tensor& x, const Tensor& weight, double eps, at::ScalarType type) {
  Two out = rms_norm_shapes(x, weight, eps, type);
  auto& [y, rstd] = out;
  cpu_kernels().rms_norm(rows_of(x), {x.scalar_type(), weight.scalar_type(), type}, x.const_data_ptr(),
                         weight.const_data_ptr(), eps, y.mutable_data_ptr(), rstd.mutable_data_ptr());
  return out;
}
Two rms_norm_backward_on_cpu(const Tensor& dy, const Tensor& x, const Tensor& rstd, const Tensor& weight,
                             const Tensor& partial) {
  Two out = rms_norm_backward_shapes(dy, x, rstd, weight, partial);
  auto& [dx, dweight] = out;
  const bool sums = dweight.defined();
  cpu_kernels().rms_norm_backward(rows_of(x), {x.scalar_type(), weight.scalar_type(), dy.scalar_type()},
                                  dy.const_data_ptr(), x.const_data_ptr(), rstd.const_data_ptr(),
                                  weight.const_data_ptr(), sums ? partial.mutable_data_ptr() : nullptr,
                                  dx.mutable_data_ptr(), sums ? dweight.mutable_data_ptr() : nullptr);
  return out;
}

TORCH_LIBRARY_FRAGMENT(dtk, library) {
  library.def("rms_norm(Tensor x, Tensor weight, float eps, ScalarType type) -> (Tensor, Tensor)");
  library.def(
      "rms_norm_backward(Tensor dy, Tensor x, Tensor rstd, Tensor weight, Tensor(a!) partial) -> (Tensor, "
      "Tensor)");
}
TORCH_LIBRARY_IMPL(dtk, CPU, library) {
  library.impl("rms_norm", &rms_norm_on_cpu);
  library.impl("rms_norm_backward", &rms_norm_backward_on_cpu);
}
TORCH_LIBRARY_IMPL(dtk, Meta, library) {
  library.impl("rms_norm", &rms_norm_shapes);
  library.impl("rms_norm_backward", &rms_norm_backward_shapes);
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps,
                        at::ScalarType type) {
    auto [y, rstd] = rms_norm_forward(x, weight, eps, type);
    context->save_for_backward({x, std::move(rstd), weight});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::rms_norm");
    const variable_list saved = context->get_saved_variables();
    auto [dx, dweight] = rms_norm_backward(of_result[0].contiguous(), saved[0], saved[1], saved[2],
                                           context->needs_input_grad(1));
    return {dx, dweight, Tensor(), Tensor()};
  }
};

}  // namespace

Two rms_norm_forward(const Tensor& x, const Tensor& weight, double eps, at::ScalarType type) {
  static const auto op = operator_of<decltype(rms_norm_shapes)>("dtk::rms_norm");
  if (x.is_cuda() || weight.is_cuda()) check_rms_norm(x, weight, type);
  return op.call(x, weight, eps, type);
}

Two rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& rstd, const Tensor& weight,
                      bool of_weight) {
  static const auto op = operator_of<decltype(rms_norm_backward_shapes)>("dtk::rms_norm_backward");
  auto sizes = partial_sizes_of_rows(x);
  if (!of_weight) sizes[0] = 0;
  Two out = op.call(dy, x, rstd, weight, partial_sums(x, sizes));
  if (of_weight && sizes[0] == 0) std::get<1>(out) = at::zeros(weight.sizes(), weight.options());
  return out;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, at::ScalarType type) {
  return RmsNorm::apply(x.contiguous(), weight.contiguous(), eps, type);
}

}  // namespace dtk::ops
