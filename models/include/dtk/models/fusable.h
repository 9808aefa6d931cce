// Layers of transformer blocks in two forms: LibTorch's operators one after the other, or a fused operator
// (ops.h) where the seam's policies want it.
#pragma once
#include <dtk/models/layers.h>
#include <dtk/models/seam.h>

#include <utility>

namespace dtk::models {

/// LN(x)·(1 + scale) + shift, for a linear layer to read: x (N, T, D) without affine weights, shift and scale
/// (N, D). Fused, and under autocast, the result has autocast's type already.
at::Tensor norm_modulate(const Seam& seam, const at::Tensor& x, const at::Tensor& shift,
                         const at::Tensor& scale, double eps);

/// The layer of norm_modulate(). Fused, what the layer reads is recomputed in backward.
at::Tensor norm_modulate_linear(const Seam& seam, const at::Tensor& x, const at::Tensor& shift,
                                const at::Tensor& scale, double eps, const Linear& linear);

/// x + gate·branch: x and branch (N, T, D), gate (N, D).
at::Tensor gated_add(const Seam& seam, const at::Tensor& x, const at::Tensor& gate, at::Tensor branch);

/// fc2(gelu(fc1(x))), tanh form, with elements dropped before fc2. What fc1 makes may be kept as fc1_out:
/// fused, without the layer's bias. Fused and without dropout, gelu's result is recomputed in backward.
at::Tensor mlp(const Seam& seam, const Linear& fc1, const Linear& fc2, at::Tensor x, double dropout);

/// {y, fc2(gelu(fc1(norm_modulate(y))))} with y = gated_add(x, gate, branch), mlp() through Seam::rows. What
/// fc2 makes may be kept as fc2_out. Fused and without dropout, y and what the layers read are recomputed in
/// backward.
std::pair<at::Tensor, at::Tensor> gated_add_mlp(const Seam& seam, at::Tensor x, const at::Tensor& gate,
                                                at::Tensor branch, const at::Tensor& shift,
                                                const at::Tensor& scale, double eps, const Linear& fc1,
                                                const Linear& fc2, double dropout);

/// x / √(mean x² + eps) · weight over the last dimension, in fp32 up to the product with the weight (D).
/// Fused, and under autocast, the result has autocast's type already.
at::Tensor rms_norm(const Seam& seam, const at::Tensor& x, const at::Tensor& weight, double eps);

/// silu(gate)·up, both (..., D).
at::Tensor silu_mul(const Seam& seam, at::Tensor gate, const at::Tensor& up);

}  // namespace dtk::models
