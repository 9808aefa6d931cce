#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <dtk/models/counted_forward.h>
#include <dtk/models/layers.h>
#include <torch/csrc/autograd/custom_function.h>

namespace dtk::models {
namespace {

struct FrozenLinear : torch::autograd::Function<FrozenLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, bool has_graph) {
    context->save_for_backward({weight});
    const CountedForward mode(has_graph);
    return at::linear(x.detach(), weight.to(x.scalar_type()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& of_result) {
    const at::Tensor weight = context->get_saved_variables()[0], &gradient = of_result[0];
    return {gradient_of_input(gradient, weight.to(gradient.scalar_type())), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor frozen_linear(const at::Tensor& x, const at::Tensor& weight) {
  const c10::DeviceType device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return at::linear(x, weight);
  const at::ScalarType type = at::autocast::get_autocast_dtype(device);
  if (weight.scalar_type() == type) return at::linear(x, weight);
  return FrozenLinear::apply(at::autocast::cached_cast(type, x, device), weight, at::GradMode::is_enabled());
}

}  // namespace dtk::models
