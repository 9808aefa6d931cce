// What tests of segments begin with.
#pragma once
#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include "support/device/test_device.h"

namespace dtk::test {

/// Bytes are counted, and saved tensors pass the layers.
struct Fixture {
  policies::CountingAllocatorGuard counting;
  policies::SavedTensorEngineGuard engine;
};

inline at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).to(test_device()).requires_grad_(true);
}

}  // namespace dtk::test
