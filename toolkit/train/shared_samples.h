// Samples that several ranks draw together.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "toolkit/distributed/ranks.h"

namespace dtk {

struct SharedSamples {
  RankShare share = {};  // of the batches in which they are drawn
  /// Called for each tensor of samples, fp32 on the CPU and zero where they are others': it has all of them
  /// once all ranks have drawn. Null: one rank draws all.
  std::function<void(const at::Tensor& samples)> join = nullptr;
};

}  // namespace dtk
