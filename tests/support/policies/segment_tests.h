// What tests of segments begin with.
#pragma once
#include <ATen/ATen.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include <functional>

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

/// How a test runs a module: as it is, or as a segment that is recomputed.
using Wrap = std::function<policies::Tensors(const policies::ModuleFn& fn, policies::Tensors&& inputs)>;
inline const Wrap kPlain = [](const policies::ModuleFn& fn, policies::Tensors&& in) {
  return fn(std::move(in));
};
inline const Wrap kSegment = [](const policies::ModuleFn& fn, policies::Tensors&& in) {
  return policies::checkpoint("net", fn, std::move(in));
};

}  // namespace dtk::test
