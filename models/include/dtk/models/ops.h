// Fused operators of transformer blocks: each does in one pass over its tensors what takes three to five of
// LibTorch's, and keeps less for backward. Schemas, CPU kernels and shape-only kernels are registered under
// dtk::; what a kernel needs beside its results it is given, as `partial`.
//
// T tokens of N samples, D channels. Arithmetic and sums are fp32, of fp64 tensors fp64. Sums over tokens are
// made in two stages of a fixed order, so that results do not depend on the number of threads. On the CPU,
// kernels for AVX-512, AVX2 and without either are compiled in; at::get_cpu_capability() says which one runs.
//
// They have no second derivative: a backward pass with create_graph throws. All throw c10::Error naming the
// operator, the argument, what it got and what it takes.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <utility>

namespace dtk::ops {

/// y = x̂·(1 + scale) + shift with x̂ = (x - mean)·rstd, rstd = 1/√(variance + eps) over D, no affine weights:
/// adaLN's modulated norm (Peebles and Xie, "Scalable Diffusion Models with Transformers"). x (N, T, D);
/// shift and scale (N, D), of one type, also chunks of a wider buffer; y (N, T, D) of `type`. Types: x fp32
/// with y, shift and scale fp32 or of one half type, but not y fp32 with halves beside it; else all as x.
/// Keeps for backward x, scale and two numbers a token; LibTorch's operators keep x̂ and 1 + scale besides.
at::Tensor norm_modulate(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale, double eps,
                         at::ScalarType type);

/// x + gate·branch, of x's type; x and branch (N, T, D), gate (N, D), also a chunk of a wider buffer.
/// Types: x fp32 with branch fp32 or half and gate fp32 or as branch, but not a half gate of an fp32 branch;
/// else all as x. Keeps gate and branch.
at::Tensor gated_add(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& branch);

/// gelu(x + bias), tanh form: u·σ(2·√(2/π)·(u + 0.044715·u³)) with u = x + bias. x (..., D), bias (D) of fp32
/// or of x's type. Keeps x and bias.
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias);

/// norm_modulate(x, shift, scale)·weightᵀ + weight_bias: weight (out, D), weight_bias (out) or undefined.
/// Under autocast the product and its result are of autocast's type, else of the weight's. Neither the
/// product's input, 2 D a token in bf16, nor a cast of the weight is kept: backward recomputes both, in one
/// pass each, and the gradient takes the input's memory. Keeps x, shift, scale and the weight.
at::Tensor norm_modulate_linear(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale,
                                double eps, const at::Tensor& weight, const at::Tensor& weight_bias);

/// {y, norm_modulate_linear(y, shift, scale, eps, weight, weight_bias)} with y = gated_add(x, gate, branch),
/// which is recomputed in backward, too: keeps x, gate, branch, shift, scale and the weight.
std::pair<at::Tensor, at::Tensor> gated_add_norm_modulate_linear(
    const at::Tensor& x, const at::Tensor& gate, const at::Tensor& branch, const at::Tensor& shift,
    const at::Tensor& scale, double eps, const at::Tensor& weight, const at::Tensor& weight_bias);

/// bias_gelu(x, bias)·weightᵀ + weight_bias, likewise: of x (..., D) and gelu's result, D numbers a row each,
/// only x is kept, and backward has one more such tensor at a time.
at::Tensor bias_gelu_linear(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& weight,
                            const at::Tensor& weight_bias);

/// x·rstd·weight with rstd = 1/√(mean x² + eps) over D (Zhang and Sennrich, "Root Mean Square Layer
/// Normalization"). x (..., D), weight (D), y (..., D) of `type`. Types: x fp32 with y fp32 or half and
/// weight fp32 or as y, but not a half weight of an fp32 y; else y as x and weight as x or fp32. Keeps x,
/// weight and a number a row; LibTorch's operators keep x in fp32, what is multiplied by the weight, and two
/// copies that a product reads. The weight's gradient is not summed where it takes none.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::ScalarType type);

/// gate·σ(gate)·up: SwiGLU's product (Shazeer, "GLU Variants Improve Transformer"). Both (..., D), of one
/// type. Keeps both, and not silu(gate).
at::Tensor silu_mul(const at::Tensor& gate, const at::Tensor& up);

/// Rotary embedding (Su et al., "RoFormer"): x (N, T, H, d), of any strides but dense channels; cosine and
/// sine (T, d) of x's type or fp32, constants. The channels are `parts` equal parts, 2 for places in a plane,
/// of two halves that turn against each other: for i in a first half and j = i + d/(2·parts),
/// y[i] = x[i]·cosine[i] - x[j]·sine[i] and y[j] = x[j]·cosine[j] + x[i]·sine[j]. y (N, T, H, d), dense, of
/// x's type. Keeps the tables.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, int64_t parts);

/// Registers the operators' kernels for CUDA from libdtk_cuda_kernels.so at `path`, for the life of the
/// process; after libtorch_cuda was loaded, and before other threads call the operators. "" where that is
/// done, now or before; else why not: the library does not load, was built with another LibTorch, or has no
/// code for the GPU. The kernels have not run on a GPU.
std::string open_cuda_kernels(const std::string& path);

}  // namespace dtk::ops
