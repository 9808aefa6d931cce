// What a training step reads at once.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dtk {

/// B samples, one behind the other in each tensor (B, ...) on the CPU. Which tensors there are, and in which
/// order, is their source's to say; one that its samples have not is undefined.
struct Batch {
  std::vector<at::Tensor> tensors;

  /// B, by the first tensor that is defined; 0 without one.
  int64_t samples() const {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) return tensor.size(0);
    }
    return 0;
  }
};

}  // namespace dtk
