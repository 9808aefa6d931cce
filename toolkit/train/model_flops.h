// The arithmetic of a DiT, and how much of a device's peak a training run makes use of (MFU).
//
// MFU = images per second x FLOPs of one image's training step / peak FLOPs per second. The step counts as
// three forward passes (backward is two); what is recomputed in backward is work that the model does not ask
// for and is not counted: that would be HFU (hardware FLOPs utilisation). Counted are the multiply-adds of
// all matrix products, attention included, 2 FLOPs each; normalisations, activations and the optimizer are
// not.
#pragma once
#include <dtk/models/dit_options.h>

#include <cstdint>
#include <optional>
#include <string>

namespace dtk {

/// Multiply-adds of one forward pass of one image. With D = hidden, T = tokens, L = depth, M = D·mlp_ratio,
/// p = patch: L (T (4 D² + 2 D M) + 2 T² D + 6 D²) + T D p² (C + C_out) + 256 D + D² + 2 D². What papers on
/// DiT call "Gflops" is this number in 10^9. Throws std::invalid_argument for a model that cannot be built.
int64_t forward_multiply_adds(const models::DitOptions& model);

/// FLOPs of a training step, for each of its images: 3 forward passes of 2 FLOPs a multiply-add.
int64_t training_flops_per_image(const models::DitOptions& model);

/// Dense bf16 FLOPs per second that NVIDIA's data sheets give for a GPU of this name, as its driver says it
/// ("NVIDIA H200", "NVIDIA A100-SXM4-80GB"); nothing for any other name.
std::optional<double> peak_flops_of(const std::string& device_name);

}  // namespace dtk
