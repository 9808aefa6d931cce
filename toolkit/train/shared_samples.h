// Samples that several ranks draw together.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "toolkit/distributed/ranks.h"

namespace dtk {

struct SharedSamples {
  RankShare share = {};  // of the batches in which they are drawn
  /// Called by each rank behind its last batch, once for each tensor of samples, fp32 on the CPU and zero
  /// where they are others': brings all. False: a rank gave up, or failed. Null: one rank draws all.
  std::function<bool(const at::Tensor& samples)> join = nullptr;
};

}  // namespace dtk
