#include <dtk/models/counted_forward.h>
#include <dtk/models/ops.h>

#include "ops/linear_recomputed.h"
#include "ops/operator.h"
#include "ops/operators.h"

namespace dtk::ops {
namespace {

struct BiasGeluLinear : torch::autograd::Function<BiasGeluLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& bias, const Tensor& weight,
                        const std::optional<Tensor>& weight_bias, bool has_graph) {
    context->save_for_backward({x, bias, weight});
    save_bias_type(*context, weight_bias);
    const models::CountedForward mode(has_graph);
    const Tensor h = bias_gelu_forward(x.detach(), bias.detach());
    return linear_of(h.to(product_type(weight)), weight, weight_bias);
  }
  static variable_list backward(AutogradContext* context, const variable_list& of_result) {
    refuse_second_derivative("dtk::bias_gelu_linear");
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &bias = saved[1], &weight = saved[2];
    const Tensor& dy = of_result[0];
    const LinearGradients of =
        gradients_of_linear(*context, 2, bias_gelu_forward(x, bias).to(dy.scalar_type()), weight, dy);
    const Tensor dx = of.input.to(x.scalar_type());
    const Tensor dbias = bias_gelu_backward_(dx, x, bias);
    return {dx, dbias, of.weight, of.bias, Tensor()};
  }
};

}  // namespace

Tensor bias_gelu_linear(const Tensor& x, const Tensor& bias, const Tensor& weight,
                        const Tensor& weight_bias) {
  return BiasGeluLinear::apply(x.contiguous(), bias.contiguous(), weight, optional_bias(weight_bias),
                               at::GradMode::is_enabled());
}

}  // namespace dtk::ops
