#include <dtk/models/ops.h>

#include "ops/operator.h"
#include "ops/operators.h"

namespace dtk::ops {
namespace {

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

TORCH_LIBRARY_FRAGMENT(dtk, library) {
  library.def(
      "norm_modulate(Tensor x, Tensor shift, Tensor scale, float eps, ScalarType type) -> (Tensor, "
      "Tensor, Tensor)");
  library.def(
      "norm_modulate_backward(Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor scale, Tensor(a!) "
      "partial) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(dtk, CPU, library) {
  library.impl("norm_modulate", &norm_modulate_on_cpu);
  library.impl("norm_modulate_backward", &norm_modulate_backward_on_cpu);
}
TORCH_LIBRARY_IMPL(dtk, Meta, library) {
  library.impl("norm_modulate", &norm_modulate_shapes);
  library.impl("norm_modulate_backward", &norm_modulate_backward_shapes);
}

struct NormModulate : torch::autograd::Function<NormModulate> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& shift, const Tensor& scale,
                        double eps, at::ScalarType type) {
    auto [y, mean, rstd] = norm_modulate_forward(x, shift, scale, eps, type);
    context->save_for_backward({x, std::move(mean), std::move(rstd), scale});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::norm_modulate");
    const variable_list saved = context->get_saved_variables();
    auto [dx, dshift, dscale] =
        norm_modulate_backward(of_result[0].contiguous(), saved[0], saved[1], saved[2], saved[3]);
    return {dx, dshift, dscale, Tensor(), Tensor()};
  }
};

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

Tensor norm_modulate(const Tensor& x, const Tensor& shift, const Tensor& scale, double eps,
                     at::ScalarType type) {
  return NormModulate::apply(x.contiguous(), with_dense_rows(shift), with_dense_rows(scale), eps, type);
}

}  // namespace dtk::ops
