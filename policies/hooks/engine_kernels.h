// Kernels that must be registered before other threads run operators: LibTorch's tables have no lock for
// readers.
#pragma once

namespace dtk::policies {

/// As a static object: the first SavedTensorEngineGuard calls `add`, once in the process.
class EngineKernels {
 public:
  explicit EngineKernels(void (*add)());
};

/// All that were asked for, those once registered left alone. Called by SavedTensorEngineGuard.
void register_engine_kernels();

}  // namespace dtk::policies
