// What the files of this model have in common.
#pragma once
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

namespace dtk::models {

/// (N, T, c) -> (N, H, T, c/H)
inline at::Tensor heads_of(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

/// As autocast would give it to a product of matrices.
inline at::Tensor as_multiplied(const at::Tensor& tensor) {
  const c10::DeviceType device = tensor.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return tensor;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

/// x with each element dropped with `probability` and the others scaled up, times weightᵀ: x (..., in),
/// weight (out, in). Neither mask nor masked copy waits for backward: the mask is drawn again, with the same
/// bits, from the state that the device's default generator had.
at::Tensor dropped_linear(const at::Tensor& x, const at::Tensor& weight, double probability);

}  // namespace dtk::models
