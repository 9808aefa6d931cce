// Sees the operators that a thread runs, as deep as autograd sees.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string_view>

namespace dtk::policies {

/// Autograd knows it, and its results are new tensors.
bool can_be_kept(const c10::OperatorHandle& op);

/// The kernel that OperatorScope needs, for all operators; later calls do nothing. LibTorch's tables have no
/// lock for readers, so SavedTensorEngineGuard does this once, before other threads run operators.
void register_operator_watch();

/// What sees the operators of this thread; the innermost one does.
class OperatorScope {
 public:
  virtual ~OperatorScope();
  OperatorScope(const OperatorScope&) = delete;
  OperatorScope& operator=(const OperatorScope&) = delete;

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
