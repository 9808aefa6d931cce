// For dtk::planner: who is told what a job runs, keeps for backward and allocates, as it does so.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/memory_accounts.h>
#include <dtk/policies/seam.h>

#include <cstdint>
#include <string_view>

namespace dtk::policies {

/// Calls come from any thread, some of them within LibTorch's allocator: they must not throw, and run no
/// operator.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  /// A module that run_observed() runs begins on this thread, and ends there.
  virtual void enter(std::string_view path, const Tensors& inputs) = 0;
  /// `outputs`: null where it threw.
  virtual void leave(const Tensors* outputs) = 0;
  /// A tensor is kept for backward, below all layers of saved_tensors.h; saving_weight() holds. `id`: unique
  /// in the process.
  virtual void kept(uint64_t id, const at::Tensor& tensor) = 0;
  /// Backward asks for it, and later lets it go.
  virtual void asked_for(uint64_t id) = 0;
  virtual void let_go(uint64_t id) = 0;
  /// A block was booked (counted_blocks.h).
  virtual void born(const MemoryBlock& block) = 0;
  /// The block of a parameter has this name.
  virtual void parameter(const MemoryBlock& block, std::string_view name) = 0;
};

/// Makes `watch` the process's while alive; one at a time, from the thread that runs the job. Without a stack
/// of layers, too, tensors that autograd saves then pass saved_tensors.h, where a SavedTensorEngineGuard is
/// alive.
class JobObserverGuard : NotCopied {
 public:
  [[nodiscard]] explicit JobObserverGuard(JobObserver& watch);
  ~JobObserverGuard();
};

/// The process's, or null.
JobObserver* job_observer();

/// `inner`, of which the watch is told.
Run run_observed(Run inner);

/// Tells the watch, if there is one, what a parameter is called whose owner is a whole module.
void name_parameter(const at::Tensor& parameter, std::string_view name);

}  // namespace dtk::policies
