// How much of a device's peak a training run makes use of (MFU).
//
// MFU = images per second x FLOPs of one image's training step / peak FLOPs per second. The step counts as
// the forward and backward passes that the model asks for, of a DiT as three forward passes; what is
// recomputed in backward is not counted: that would be HFU (hardware FLOPs utilisation). Counted are the
// multiply-adds of all matrix products, attention included, 2 FLOPs each; normalisations, activations and the
// optimizer are not.
#pragma once
#include <optional>
#include <string>

namespace dtk {

/// Dense bf16 FLOPs per second that NVIDIA's data sheets give for a GPU of this name, as its driver says it
/// ("NVIDIA H200", "NVIDIA A100-SXM4-80GB"); nothing for any other name.
std::optional<double> peak_flops_of(const std::string& device_name);

}  // namespace dtk
