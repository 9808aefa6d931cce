// The matrices of the decoder, with LoRA adapters beside them (Hu et al., 2021), as peft computes them.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <dtk/models/counted_forward.h>
#include <dtk/models/llava.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>

#include "llava/parts.h"

namespace dtk::models {
namespace {

// As at::dropout makes it, which also scales.
at::Tensor drawn_mask(const at::Tensor& like, double probability, const at::Generator& generator) {
  at::Tensor mask = at::empty_like(like);
  mask.bernoulli_(1 - probability, generator);
  mask.div_(1 - probability);
  return mask;
}

struct DroppedLinear : torch::autograd::Function<DroppedLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, double probability, bool has_graph) {
    at::Generator generator = at::globalContext().defaultGenerator(x.device());
    // As it is before the draw: the whole of what backward needs for it.
    context->saved_data["generator"] = at::IValue(generator.clone());
    context->saved_data["probability"] = probability;
    context->save_for_backward({x, weight});
    const CountedForward mode(has_graph);
    at::Tensor dropped = as_multiplied(x.detach());
    dropped = dropped * drawn_mask(dropped, probability, generator);
    return at::linear(dropped, as_multiplied(weight.detach()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& of_result) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &gradient = of_result[0];
    const double probability = context->saved_data["probability"].toDouble();
    const at::Generator generator = context->saved_data["generator"].toGenerator().clone();
    const at::Tensor used = x.to(gradient.scalar_type());
    at::Tensor mask = drawn_mask(used, probability, generator);
    const at::Tensor rows = gradient.flatten(0, -2);
    at::Tensor of_weight, of_x;
    if (context->needs_input_grad(1)) {
      at::Tensor dropped = used * mask;
      of_weight = at::matmul(rows.t(), dropped.flatten(0, -2)).to(weight.scalar_type());
    }
    if (context->needs_input_grad(0)) {
      of_x = at::matmul(gradient, weight.to(gradient.scalar_type()));
      of_x = (of_x * mask).to(x.scalar_type());
    }
    return {of_x, of_weight, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor dropped_linear(const at::Tensor& x, const at::Tensor& weight, double probability) {
  return DroppedLinear::apply(x, weight, probability, at::GradMode::is_enabled());
}

at::Tensor Llava::product(const LlavaProjection& matrix, const at::Tensor& x, bool training) const {
  const auto weighed = [&] {
    if (matrix.packed) return packed_linear(x, *matrix.packed);
    return matrix.weight.requires_grad() ? at::linear(x, matrix.weight) : frozen_linear(x, matrix.weight);
  };
  at::Tensor y = weighed();
  if (!matrix.down.defined()) return y;
  const LlavaLora& lora = options_.lora;
  // Adapters are fp32; where autocast does not choose for the product, they choose.
  const bool casts = at::autocast::is_autocast_enabled(x.device().type());
  const at::Tensor in = casts ? x : x.to(matrix.down.scalar_type());
  at::Tensor h = training && lora.dropout > 0 ? dropped_linear(in, matrix.down, lora.dropout)
                                              : at::linear(in, matrix.down);
  h = at::linear(h, matrix.up);
  h = h * (lora.alpha / static_cast<double>(lora.r));
  return y + h.to(y.scalar_type());
}

}  // namespace dtk::models
