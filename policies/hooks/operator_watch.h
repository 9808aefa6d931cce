// Kernels of our own for LibTorch's operators, and what sees the operators that a thread runs, as deep as
// autograd sees.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dtk/policies/internal/scoped.h>

#include <optional>
#include <string_view>

namespace dtk::policies {

/// Autograd knows it, and its results are new tensors.
bool can_be_kept(const c10::OperatorHandle& op);

/// Kernels that must be registered before other threads run operators: LibTorch's tables have no lock for
/// readers. As a static object: the first SavedTensorEngineGuard calls `add`, once in the process.
class EngineKernels {
 public:
  explicit EngineKernels(void (*add)());
};

/// All that were asked for, those once registered left alone. Called by SavedTensorEngineGuard.
void register_engine_kernels();

/// What sees the operators of this thread; the innermost one does.
class OperatorScope : NotCopied {
 public:
  virtual ~OperatorScope();

  /// Runs the operator, or takes its results from elsewhere.
  virtual void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) = 0;
  virtual void mark(std::string_view, const at::Tensor&) {}
  /// The calling thread's; null without one.
  static OperatorScope* innermost();

 protected:
  explicit OperatorScope(bool watch);

 private:
  OperatorScope* const outer_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> watched_;
};

/// While alive, what this thread runs is the engine's own: no operator of a segment, and not numbered.
class UnwatchedScope {
 public:
  [[nodiscard]] UnwatchedScope();

 private:
  c10::impl::ExcludeDispatchKeyGuard unwatched_;
};

}  // namespace dtk::policies
