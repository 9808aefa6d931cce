// The operators of the dispatcher: forward and backward of each, without autograd.
#pragma once
#include <ATen/core/Tensor.h>

#include <tuple>

namespace dtk::ops {

using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// y, mean and rstd (N, T)
Three norm_modulate_forward(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale, double eps,
                            at::ScalarType type);
/// dx, dshift, dscale
Three norm_modulate_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                             const at::Tensor& rstd, const at::Tensor& scale);
at::Tensor gated_add_forward(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& branch);
/// dgate, dbranch
Two gated_add_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& branch);
at::Tensor bias_gelu_forward(const at::Tensor& x, const at::Tensor& bias);
/// dx, dbias
Two bias_gelu_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias);

}  // namespace dtk::ops
