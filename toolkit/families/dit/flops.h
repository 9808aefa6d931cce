// The arithmetic of a DiT, as MFU counts it (toolkit/train/peak_flops.h).
#pragma once
#include <dtk/models/dit_options.h>

#include <cstdint>

namespace dtk::dit {

/// Multiply-adds of one forward pass of one image. With D = hidden, T = tokens, L = depth, M = D·mlp_ratio,
/// p = patch: L (T (4 D² + 2 D M) + 2 T² D + 6 D²) + T D p² (C + C_out) + 256 D + D² + 2 D². What papers on
/// DiT call "Gflops" is this number in 10^9. Throws std::invalid_argument for a model that cannot be built.
int64_t forward_multiply_adds(const models::DitOptions& model);

/// FLOPs of a training step, for each of its images: 3 forward passes of 2 FLOPs a multiply-add.
int64_t training_flops_per_image(const models::DitOptions& model);

}  // namespace dtk::dit
