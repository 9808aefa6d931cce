// A CUDA device that computes nothing, in a process without libtorch_cuda: every storage is made, counted and
// freed as the job's own code does it on a GPU, and no kernel runs. CPU tensors are treated alike.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dtk/policies/internal/scoped.h>

#include <optional>

namespace dtk::planner {

/// Registers the simulated device and the shape-only CPU for the rest of the process; a second call does
/// nothing. Call before anything asks LibTorch for a CUDA device, its answer is kept. Throws PlanError if
/// libtorch_cuda is loaded (simulated and real CUDA exclude each other), its dispatch key is taken, or this
/// is built with a LibTorch that plans do not know (torch_versions.h).
void register_simulated_devices();

/// Throws PlanError if LibTorch has no CUDA device in this process although one is registered, as it keeps
/// the answer that it gave before.
void require_simulated_cuda();

/// While alive, operators on this thread compute nothing, on the CPU too, and neither do those of threads
/// that take over its thread-local state (the autograd engine's). Reading a value (item()) throws PlanError.
class ShapesOnlyScope : policies::NotCopied {
 public:
  [[nodiscard]] ShapesOnlyScope();
  ~ShapesOnlyScope();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace dtk::planner
