// Equal as bits: at::equal takes -0 for 0, and no NaN for itself.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

namespace dtk::test {

/// Of two tensors of one type on one device.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const auto bytes = [](const at::Tensor& one) {
    return one.detach().contiguous().reshape({-1}).view(at::kByte);
  };
  return at::equal(bytes(a), bytes(b));
}

}  // namespace dtk::test
