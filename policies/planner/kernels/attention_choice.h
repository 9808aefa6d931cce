// Which attention kernel LibTorch takes on a CUDA device of compute capability 8.0 or higher.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace dtk::planner {

/// Installs the choice for the simulated device.
void register_attention_choice();

/// aten::_fused_sdp_choice: what scaled_dot_product_attention takes for tensors like these, by the choice of
/// their own device. (LibTorch's shape kernel would always say that there is no fused form.)
int64_t attention_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool causal,
                         std::optional<double> scale, bool grouped);

}  // namespace dtk::planner
