#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>

#include "support/device/test_device.h"

namespace dtk::test {

/// DeviceMemory::live() without what the engine's thread of a device holds a moment longer than backward()
/// runs: the gradients of its latest task, until it takes the next. It is given one that leaves nothing,
/// since the gradient of a leaf moves into the leaf.
inline int64_t settled_live() {
  if (!on_cpu()) {
    // Never destroyed, as the engine's thread holds it too.
    static const at::Tensor& leaf = *new at::Tensor(at::ones({}, test_device()).requires_grad_(true));
    torch::autograd::backward({leaf.clone()}, {});
    leaf.mutable_grad().reset();
  }
  return DeviceMemory::live();
}

}  // namespace dtk::test
