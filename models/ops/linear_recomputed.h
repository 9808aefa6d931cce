// A linear layer that keeps neither its input nor autocast's copy of its weight: backward recomputes both,
// by one pass over memory each, and lets the gradient take the input's place.
#pragma once
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

namespace dtk::ops {

/// Of what a product reads: autocast's type, or the tensor's own.
inline at::ScalarType product_type(const at::Tensor& tensor) {
  const c10::DeviceType device = tensor.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                   : tensor.scalar_type();
}

inline std::optional<at::Tensor> optional_bias(const at::Tensor& bias) {
  return bias.defined() ? std::optional(bias) : std::nullopt;
}

/// x·weightᵀ + bias of x's type, without a graph.
inline at::Tensor linear_of(const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
  const auto read = [&](const at::Tensor& tensor) { return tensor.detach().to(x.scalar_type()); };
  return at::linear(x.detach(), read(weight), bias ? std::optional(read(*bias)) : std::nullopt);
}

struct LinearGradients {
  at::Tensor input, weight, bias;  // the latter two undefined where nobody wants them
};

/// Of y = x·weightᵀ + bias by dy, for a function whose tensors end with the weight, the `number`th counted
/// from 0, and, where `bias_type` was saved, the bias. The gradient of x takes the memory of x, which nobody
/// else may read. Those of weight and bias are rounded to x's type first, as at::linear's are.
inline LinearGradients gradients_of_linear(const torch::autograd::AutogradContext& context, size_t number,
                                           at::Tensor&& x, const at::Tensor& weight, const at::Tensor& dy) {
  const at::Tensor rows = dy.reshape({-1, dy.size(-1)});
  at::Tensor inputs = x.view({-1, x.size(-1)});
  LinearGradients of;
  const auto bias = context.saved_data.find("bias_type");
  if (context.needs_input_grad(number)) of.weight = rows.t().mm(inputs).to(weight.scalar_type());
  if (bias != context.saved_data.end() && context.needs_input_grad(number + 1))
    of.bias = rows.sum(0).to(bias->second.toScalarType());
  at::mm_out(inputs, rows, weight.to(x.scalar_type()));
  of.input = std::move(x);
  return of;
}

inline void save_bias_type(torch::autograd::AutogradContext& context, const std::optional<at::Tensor>& bias) {
  if (bias) context.saved_data["bias_type"] = bias->scalar_type();
}

}  // namespace dtk::ops
