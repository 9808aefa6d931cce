#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dtk/models/ops.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/operators.h"

namespace dtk::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of a chunk of a wider buffer the rows are apart; other forms are copied.
at::Tensor with_dense_rows(const at::Tensor& rows) {
  return rows.dim() == 2 && rows.stride(1) == 1 ? rows : rows.contiguous();
}

// Gradients of gradients would be undefined ones, and LibTorch would say nothing.
void refuse_second_derivative(const char* op) {
  TORCH_CHECK(!at::GradMode::is_enabled(), op,
              " has no second derivative: backward was called with create_graph; call LibTorch's operators "
              "there (policies.fusion.enabled = false)");
}

struct NormModulate : torch::autograd::Function<NormModulate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& shift,
                            const at::Tensor& scale, double eps, at::ScalarType type) {
    auto [y, mean, rstd] = norm_modulate_forward(x, shift, scale, eps, type);
    context->save_for_backward({x, std::move(mean), std::move(rstd), scale});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::norm_modulate");
    const variable_list saved = context->get_saved_variables();
    auto [dx, dshift, dscale] =
        norm_modulate_backward(of_result[0].contiguous(), saved[0], saved[1], saved[2], saved[3]);
    return {dx, dshift, dscale, at::Tensor(), at::Tensor()};
  }
};

struct GatedAdd : torch::autograd::Function<GatedAdd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& branch) {
    context->save_for_backward({gate, branch});
    return gated_add_forward(x, gate, branch);
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::gated_add");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = of_result[0].contiguous();
    auto [dgate, dbranch] = gated_add_backward(dy, saved[0], saved[1]);
    return {dy, dgate, dbranch};
  }
};

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bias) {
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

at::Tensor norm_modulate(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale, double eps,
                         at::ScalarType type) {
  return NormModulate::apply(x.contiguous(), with_dense_rows(shift), with_dense_rows(scale), eps, type);
}

at::Tensor gated_add(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& branch) {
  return GatedAdd::apply(x.contiguous(), with_dense_rows(gate), branch.contiguous());
}

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias) {
  return BiasGelu::apply(x.contiguous(), bias.contiguous());
}

}  // namespace dtk::ops
