// What a step is given: some samples, as the tensors of their source and of the model that reads them.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dtk {

/// Each defined tensor is (N, ...), a row a sample; what they are, and in which order, is their source's to
/// say (image_source.h, planner_frame_source.h).
struct Batch {
  std::vector<at::Tensor> tensors;

  /// N; 0 of an empty batch.
  int64_t samples() const {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) return tensor.size(0);
    }
    return 0;
  }
};

}  // namespace dtk
