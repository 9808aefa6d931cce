#include <dtk/models/counted_forward.h>
#include <dtk/models/ops.h>

#include "ops/linear_recomputed.h"
#include "ops/operator.h"
#include "ops/operators.h"

namespace dtk::ops {
namespace {

// Its x is kept.
struct NormModulateLinear : torch::autograd::Function<NormModulateLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& shift, const Tensor& scale,
                        double eps, const Tensor& weight, const std::optional<Tensor>& bias, bool has_graph) {
    context->save_for_backward({x, shift, scale, weight});
    context->saved_data["eps"] = eps;
    save_bias_type(*context, bias);
    const models::CountedForward mode(has_graph);
    const Tensor h = std::get<0>(
        norm_modulate_forward(x.detach(), shift.detach(), scale.detach(), eps, product_type(weight)));
    return linear_of(h, weight, bias);
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::norm_modulate_linear");
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &shift = saved[1], &scale = saved[2], &weight = saved[3], &dy = of_result[0];
    auto [h, mean, rstd] =
        norm_modulate_forward(x, shift, scale, context->saved_data["eps"].toDouble(), dy.scalar_type());
    const LinearGradients of = gradients_of_linear(*context, 3, std::move(h), weight, dy);
    auto [dx, dshift, dscale] = norm_modulate_backward(of.input, x, mean, rstd, scale);
    return {dx, dshift, dscale, Tensor(), of.weight, of.bias, Tensor()};
  }
};

// Its x, a sum, is recomputed, too.
struct GatedAddNormModulateLinear : torch::autograd::Function<GatedAddNormModulateLinear> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const Tensor& gate,
                               const Tensor& branch, const Tensor& shift, const Tensor& scale, double eps,
                               const Tensor& weight, const std::optional<Tensor>& bias, bool has_graph) {
    context->save_for_backward({x, gate, branch, shift, scale, weight});
    context->saved_data["eps"] = eps;
    save_bias_type(*context, bias);
    const models::CountedForward mode(has_graph);
    const Tensor sum = gated_add_forward(x.detach(), gate.detach(), branch.detach());
    const Tensor h =
        std::get<0>(norm_modulate_forward(sum, shift.detach(), scale.detach(), eps, product_type(weight)));
    return {sum, linear_of(h, weight, bias)};
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_results) {
    refuse_second_derivative("dtk::gated_add_norm_modulate_linear");
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &gate = saved[1], &branch = saved[2], &shift = saved[3], &scale = saved[4],
                 &weight = saved[5], &of_sum = of_results[0], &dy = of_results[1];
    const Tensor sum = gated_add_forward(x, gate, branch);
    auto [h, mean, rstd] =
        norm_modulate_forward(sum, shift, scale, context->saved_data["eps"].toDouble(), dy.scalar_type());
    const LinearGradients of = gradients_of_linear(*context, 5, std::move(h), weight, dy);
    auto [dx, dshift, dscale] = norm_modulate_backward(of.input, sum, mean, rstd, scale);
    dx.add_(of_sum);
    auto [dgate, dbranch] = gated_add_backward(dx, gate, branch);
    return {dx, dgate, dbranch, dshift, dscale, Tensor(), of.weight, of.bias, Tensor()};
  }
};

}  // namespace

Tensor norm_modulate_linear(const Tensor& x, const Tensor& shift, const Tensor& scale, double eps,
                            const Tensor& weight, const Tensor& weight_bias) {
  return NormModulateLinear::apply(x.contiguous(), with_dense_rows(shift), with_dense_rows(scale), eps,
                                   weight, optional_bias(weight_bias), at::GradMode::is_enabled());
}

std::pair<Tensor, Tensor> gated_add_norm_modulate_linear(const Tensor& x, const Tensor& gate,
                                                         const Tensor& branch, const Tensor& shift,
                                                         const Tensor& scale, double eps,
                                                         const Tensor& weight, const Tensor& weight_bias) {
  variable_list both = GatedAddNormModulateLinear::apply(
      x.contiguous(), with_dense_rows(gate), branch.contiguous(), with_dense_rows(shift),
      with_dense_rows(scale), eps, weight, optional_bias(weight_bias), at::GradMode::is_enabled());
  return {std::move(both[0]), std::move(both[1])};
}

}  // namespace dtk::ops
