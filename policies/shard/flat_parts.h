#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dtk::policies {

/// So many elements of a flat tensor from `begin` on, in its memory. No operator runs, which for each of a
/// thousand ranks would cost a plan seconds.
inline at::Tensor part_of_flat(const at::Tensor& flat, int64_t begin, int64_t elements) {
  at::Tensor part = flat.tensor_data();
  c10::TensorImpl* const impl = part.unsafeGetTensorImpl();
  impl->set_allow_tensor_metadata_change(true);
  impl->set_storage_offset(flat.storage_offset() + begin);
  impl->set_sizes_contiguous({elements});
  return part;
}

}  // namespace dtk::policies
