#include <dtk/models/ops.h>

#include "ops/operator.h"
#include "ops/operators.h"

namespace dtk::ops {
namespace {

void check_bias_gelu(const Tensor& x, const Tensor& bias) {
  constexpr const char* kName = "dtk::bias_gelu";
  check_channels(kName, "x", x);
  check_same_shape(kName, "bias", bias, {x.size(-1)}, x);
  const Types types{x.scalar_type(), bias.scalar_type(), x.scalar_type()};
  check_types(kName, takes_bias_gelu(types), types, "bias", "result");
  check_dense(kName, {{"x", &x}, {"bias", &bias}});
}

void check_bias_gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& partial) {
  constexpr const char* kName = "dtk::bias_gelu_backward";
  check_bias_gelu(x, bias);
  check_same_shape(kName, "dy", dy, x.sizes(), x);
  check_dense(kName, {{"dy", &dy}});
  TORCH_CHECK(dy.scalar_type() == x.scalar_type(), kName, ": dy is ", dy.scalar_type(), ", x ",
              x.scalar_type(), "; allowed: one type");
  check_partial(kName, partial, partial_sizes_of_rows(x), x);
}

Tensor bias_gelu_shapes(const Tensor& x, const Tensor& bias) {
  check_bias_gelu(x, bias);
  return at::empty(x.sizes(), x.options());
}

Two bias_gelu_backward_shapes(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& partial) {
  check_bias_gelu_backward(dy, x, bias, partial);
  return {at::empty(x.sizes(), x.options()), at::empty(bias.sizes(), bias.options())};
}

Tensor bias_gelu_backward_in_place_shapes(const Tensor& dy, const Tensor& x, const Tensor& bias,
                                          const Tensor& partial) {
  check_bias_gelu_backward(dy, x, bias, partial);
  return at::empty(bias.sizes(), bias.options());
}

Tensor bias_gelu_on_cpu(const Tensor& x, const Tensor& bias) {
  Tensor y = bias_gelu_shapes(x, bias);
  cpu_kernels().bias_gelu(rows_of(x), {x.scalar_type(), bias.scalar_type(), x.scalar_type()},
                          x.const_data_ptr(), bias.const_data_ptr(), y.mutable_data_ptr());
  return y;
}

void fill_bias_gelu_gradients(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& partial,
                              const Tensor& dx, const Tensor& dbias) {
  cpu_kernels().bias_gelu_backward(rows_of(x), {x.scalar_type(), bias.scalar_type(), x.scalar_type()},
                                   dy.const_data_ptr(), x.const_data_ptr(), bias.const_data_ptr(),
                                   partial.mutable_data_ptr(), dx.mutable_data_ptr(),
                                   dbias.mutable_data_ptr());
}
Two bias_gelu_backward_on_cpu(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& partial) {
  Two out = bias_gelu_backward_shapes(dy, x, bias, partial);
  fill_bias_gelu_gradients(dy, x, bias, partial, std::get<0>(out), std::get<1>(out));
  return out;
}
Tensor bias_gelu_backward_in_place_on_cpu(const Tensor& dy, const Tensor& x, const Tensor& bias,
                                          const Tensor& partial) {
  Tensor dbias = bias_gelu_backward_in_place_shapes(dy, x, bias, partial);
  fill_bias_gelu_gradients(dy, x, bias, partial, dy, dbias);
  return dbias;
}

TORCH_LIBRARY_FRAGMENT(dtk, library) {
  library.def("bias_gelu(Tensor x, Tensor bias) -> Tensor");
  library.def("bias_gelu_backward(Tensor dy, Tensor x, Tensor bias, Tensor(a!) partial) -> (Tensor, Tensor)");
  library.def("bias_gelu_backward_(Tensor(a!) dy, Tensor x, Tensor bias, Tensor(b!) partial) -> Tensor");
}
TORCH_LIBRARY_IMPL(dtk, CPU, library) {
  library.impl("bias_gelu", &bias_gelu_on_cpu);
  library.impl("bias_gelu_backward", &bias_gelu_backward_on_cpu);
  library.impl("bias_gelu_backward_", &bias_gelu_backward_in_place_on_cpu);
}
TORCH_LIBRARY_IMPL(dtk, Meta, library) {
  library.impl("bias_gelu", &bias_gelu_shapes);
  library.impl("bias_gelu_backward", &bias_gelu_backward_shapes);
  library.impl("bias_gelu_backward_", &bias_gelu_backward_in_place_shapes);
}

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& bias) {
    context->save_for_backward({x, bias});
    return bias_gelu_forward(x, bias);
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::bias_gelu");
    const variable_list saved = context->get_saved_variables();
    auto [dx, dbias] = bias_gelu_backward(of_result[0].contiguous(), saved[0], saved[1]);
    return {dx, dbias};
  }
};

}  // namespace

Tensor bias_gelu_forward(const Tensor& x, const Tensor& bias) {
  static const auto op = operator_of<decltype(bias_gelu_shapes)>("dtk::bias_gelu");
  if (x.is_cuda() || bias.is_cuda()) check_bias_gelu(x, bias);
  return op.call(x, bias);
}

Two bias_gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& bias) {
  static const auto op = operator_of<decltype(bias_gelu_backward_shapes)>("dtk::bias_gelu_backward");
  return op.call(dy, x, bias, partial_sums(x, partial_sizes_of_rows(x)));
}

Tensor bias_gelu_backward_(const Tensor& dy, const Tensor& x, const Tensor& bias) {
  static const auto op =
      operator_of<decltype(bias_gelu_backward_in_place_shapes)>("dtk::bias_gelu_backward_");
  return op.call(dy, x, bias, partial_sums(x, partial_sizes_of_rows(x)));
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias) {
  return BiasGelu::apply(x.contiguous(), bias.contiguous());
}

}  // namespace dtk::ops
