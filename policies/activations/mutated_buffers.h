// What a segment changes and what outlives it: running statistics of batch norms, counters of batches. A
// recomputation would change them a second time.
//
// Forward watches the operators that make such changes; what is alive when the segment is done is state of
// its modules, and a recomputation leaves that alone: normalizations get copies of their statistics, and
// counters stay. Found by storage, so that no module must be known or say anything. The watch costs other
// operators nothing: those watched have kernels on a dispatch key of their own, through which all others
// fall. Batch norms are seen here, so here the recomputation gets their batch's statistics too.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/seam.h>

#include <vector>

#include "activations/batch_statistics.h"

namespace dtk::policies {

/// Storages that a segment changed and that were not its own. Does not keep them alive.
using MutatedBuffers = std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>;

/// While alive, changes of state by operators of this thread are noted. Watches nest; all of them note.
class MutationRecorder : NotCopied {
 public:
  [[nodiscard]] MutationRecorder();
  ~MutationRecorder();

  /// What was changed, is still alive and not among `outputs`.
  MutatedBuffers mutated(const Tensors& outputs) const;
  /// Of batch norms, in the order of their calls.
  const StatisticsOfCalls& statistics() const { return statistics_; }
  void note(const at::Tensor& changed);
  void note(const BatchStatistics& statistics);

 private:
  MutationRecorder* const outer_;
  MutatedBuffers changed_;
  StatisticsOfCalls statistics_;
  const c10::impl::IncludeDispatchKeyGuard watched_;
};

/// While alive, operators of this thread leave `state` as it is, and batch norms take `statistics` in turn
/// for those of their inputs. Refers to both.
class MutationGuard : NotCopied {
 public:
  [[nodiscard]] MutationGuard(const MutatedBuffers& state, const StatisticsOfCalls& statistics);
  ~MutationGuard();

  bool keeps(const at::Tensor& tensor) const;
  /// Of the next batch norm that keeps its statistics; null: none was seen.
  const BatchStatistics* next_statistics();

 private:
  const MutatedBuffers& state_;
  const StatisticsOfCalls& statistics_;
  size_t next_ = 0;  // of statistics_
  MutationGuard* const outer_;
  const c10::impl::IncludeDispatchKeyGuard watched_;
};

/// To be called in the place of an operator whose results are taken from elsewhere; arguments on `stack`.
void pass_over(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace dtk::policies
