// What tower and decoder have in common.
#pragma once
#include <ATen/core/Tensor.h>

namespace dtk::models {

/// (N, T, c) -> (N, H, T, c/H)
inline at::Tensor heads_of(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

}  // namespace dtk::models
