#include "toolkit/families/dit/flops.h"

namespace dtk::dit {

int64_t forward_multiply_adds(const models::DitOptions& given) {
  constexpr int64_t time_features = 256;  // sines and cosines that embed t
  const models::DitOptions model = models::resolved(given);
  const int64_t hidden = *model.hidden, tokens = model.tokens();
  const int64_t square = hidden * hidden, patch = *model.patch * *model.patch;
  const auto inner = static_cast<int64_t>(static_cast<double>(hidden) * model.mlp_ratio);
  const int64_t products = 4 * square + 2 * hidden * inner;  // qkv 3, proj 1, fc1 and fc2
  const int64_t attention = 2 * tokens * tokens * hidden;    // q kᵀ, weights v
  const int64_t block = tokens * products + attention + 6 * square;
  const int64_t ends = tokens * hidden * patch * (model.channels + model.out_channels()) + 2 * square;
  return *model.depth * block + ends + time_features * hidden + square;
}

int64_t training_flops_per_image(const models::DitOptions& model) {
  return 3 * 2 * forward_multiply_adds(model);
}

}  // namespace dtk::dit
