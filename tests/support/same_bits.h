// Equal as bits: at::equal takes -0 for 0, and no NaN for itself.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>

namespace dtk::test {

/// Of two fp32 tensors on one device.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat, "same_bits: fp32 only");
  return a.sizes() == b.sizes() &&
         at::equal(a.detach().contiguous().view(at::kInt), b.detach().contiguous().view(at::kInt));
}

}  // namespace dtk::test
