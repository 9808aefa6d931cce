// Activation checkpointing: a segment keeps its inputs only, and backward recomputes the rest.
//
// Non-reentrant, on the stack of saved-tensor layers (saved_tensors.h): forward builds the ordinary graph,
// whose saved tensors are dropped; the first of them that backward asks for runs the segment once more and
// collects them all. So parameters need not be listed, gradients flow through one real graph, segments nest,
// and the recomputation stops at the last tensor that is needed. Not dropped are the segment's inputs
// themselves, unless a layer below lets those go, and leaves that need a gradient, such as parameters, with
// their views: they are there in any case, and a segment of which backward needs nothing else is not run
// again. Needs a SavedTensorEngineGuard.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/internal/kept_results.h>
#include <dtk/policies/internal/recomputing.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/seam.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dtk::policies {

/// What checkpointing did so far in the process. Thread-safe to read.
struct CheckpointCounts {
  int64_t segments = 0;     // forward runs that were checkpointed
  int64_t recomputes = 0;   // segments recomputed
  int64_t early_stops = 0;  // of these, stopped at the last tensor needed
  int64_t dropped = 0;      // tensors that forward did not keep
};
CheckpointCounts checkpoint_counts();

/// Runs fn(inputs) as one segment and returns its outputs; inputs and outputs may be undefined, and need a
/// gradient or not. In backward fn is recomputed on the same inputs, on the thread that needs it, with grad
/// mode and with the random state (of the CPU and of the inputs' device), autocast state, deterministic
/// flags, attention backends and module path of this call; it must compute the same from them, read no other
/// tensors that need a gradient than its inputs and parameters, and change no other state when recomputing().
/// Without grad mode this is fn(inputs). `path` names the segment in errors.
///
/// Segments nest. autograd::grad, retain_graph and create_graph (double backward) work; each backward pass
/// recomputes what it needs. Nothing is traversed beyond the graph of forward. What is recomputed is freed
/// when its node's backward is done; the inputs, when the whole segment's is.
///
/// A batch norm in training on the CPU computes its batch's statistics in forward only: they, 2 numbers a
/// channel, are kept (in fp32 and fp64; elsewhere a recomputation takes them again). Values are the same
/// bits.
///
/// Autocast's casts of weights are freed at the segment's end, not at the end of the forward pass: a weight
/// that is read again after it is cast again. Its gradient is then the sum of its uses in fp32, no longer in
/// bf16.
///
/// Throws c10::Error when inputs lie on two devices (but numbers without dimensions on the CPU), when fn
/// changes an input in place, and when it returns its inputs unchanged. Also without a
/// SavedTensorEngineGuard. Backward throws it when an input, a parameter or another tensor that fn reads and
/// autograd saves was changed in place since and it needs that tensor or a recomputation, when it runs within
/// a segment's forward pass, and when the recomputation saves or returns other tensors than forward did: the
/// message names the segment, both forms and the likely cause. What fn throws while it is recomputed passes
/// unchanged; then, too, nothing of the recomputation stays. While a segment is recomputed nothing else may
/// draw from the default generators of its devices; where flags or backends have changed since forward,
/// nothing else may compute.
///
/// `keep`: results that are kept too; the operators that made them are not recomputed, and draw the random
/// numbers that they drew. All others up to the last tensor that backward needs are, also those that only led
/// to a kept result. Costs forward and recomputation about a microsecond for each operator of the segment.
Tensors checkpoint(std::string_view path, const ModuleFn& fn, Tensors&& inputs,
                   std::shared_ptr<KeptResults> keep = nullptr);

/// Several consecutive modules as one segment: begin with the first, append the next ones. Tensors that one
/// call returns and a later one takes are inside the segment and are not kept.
class CheckpointSegment : NotCopied {
 public:
  /// `counted`: max_saved() is asked for. It costs a look-up for each tensor saved.
  explicit CheckpointSegment(bool counted = false, std::shared_ptr<KeptResults> keep = nullptr);
  ~CheckpointSegment();

  /// As checkpoint(), as part of this segment. Throws c10::Error when an input that an earlier call returned
  /// was changed in place since: a recomputation would not make that change.
  Tensors append(std::string_view path, const ModuleFn& fn, Tensors&& inputs);
  /// At most so many bytes fewer are kept so far than by a plain forward pass: what was let go, without
  /// parameters, less what is kept of the inputs and results that a plain pass would not keep. 0 or less:
  /// none. 0 where it is not counted.
  int64_t max_saved() const;

 private:
  struct Frame;
  class CollectLayer;
  friend struct Frame;
  const bool counted_;
  const std::shared_ptr<KeptResults> keep_;
  std::shared_ptr<Frame> frame_;
};

}  // namespace dtk::policies
