// Layers of transformer blocks in two forms: LibTorch's operators one after the other, or a fused operator
// (ops.h) where the seam's policies want it.
#pragma once
#include <dtk/models/layers.h>
#include <dtk/models/seam.h>

namespace dtk::models {

/// LN(x)·(1 + scale) + shift, for a linear layer to read: x (N, T, D) without affine weights, shift and scale
/// (N, D). Fused, and under autocast, the result has autocast's type already.
at::Tensor norm_modulate(const Seam& seam, const at::Tensor& x, const at::Tensor& shift,
                         const at::Tensor& scale, double eps);

/// x + gate·branch: x and branch (N, T, D), gate (N, D).
at::Tensor gated_add(const Seam& seam, const at::Tensor& x, const at::Tensor& gate, at::Tensor branch);

/// gelu(fc1(x)), tanh form; fused, the layer's bias is added there. What fc1 makes may be kept as fc1_out.
at::Tensor mlp_activation(const Seam& seam, const Linear& fc1, at::Tensor x);

}  // namespace dtk::models
