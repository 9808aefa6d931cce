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
/// dbias; dx takes the place of dy
at::Tensor bias_gelu_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias);
/// y and rstd (...)
Two rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, at::ScalarType type);
/// dx, dweight; without of_weight, that is undefined
Two rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd,
                      const at::Tensor& weight, bool of_weight);
at::Tensor silu_mul_forward(const at::Tensor& gate, const at::Tensor& up);
/// dgate, dup
Two silu_mul_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up);
at::Tensor rotate_forward(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine,
                          int64_t parts);
at::Tensor rotate_backward(const at::Tensor& dy, const at::Tensor& cosine, const at::Tensor& sine,
                           int64_t parts);

}  // namespace dtk::ops
