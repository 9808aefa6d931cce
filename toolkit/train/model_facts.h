// What a run says of its model and of its samples, known from the configuration alone.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/core/named_tensor.h"
#include "toolkit/data/image.h"

namespace dtk {

/// "DiT-S/4, 32.58 M parameters: depth 12, width 384, ...".
std::string model_text(const RunConfig& config, int64_t parameters);
/// What its samples are called: "images" or "frames".
std::string sample_name(const RunConfig& config);
/// Of one sample.
int64_t tokens_per_sample(const RunConfig& config);
/// Floating-point operations of a training step, a sample (model_flops.h). Of a model without a formula by
/// `planned_forward`, a plan's for the forward passes of a step; 0 where that is 0.
double training_flops_per_sample(const RunConfig& config, int64_t planned_forward);

/// "80 images in 25 steps": what the run draws when it samples; "" if it draws nothing.
std::string drawn_text(const RunConfig& config);
/// The key that says how many samples a run draws.
std::string samples_key(const RunConfig& config);
/// Whether its samples are kept as pictures; else as tensors.
bool draws_pictures(const RunConfig& config);
/// A picture of such samples: one row a class.
Image picture_of(const RunConfig& config, const std::vector<NamedTensor>& samples);
/// "latents of 4 channels": what samples that are no pictures are.
std::string tensors_text(const RunConfig& config);

}  // namespace dtk
