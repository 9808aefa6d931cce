// Activation checkpointing: a segment keeps its inputs only, and backward computes the rest again.
//
// Non-reentrant, on the stack of saved-tensor layers (saved_tensors.h): forward builds the ordinary graph,
// whose saved tensors are dropped; the first of them that backward asks for runs the segment once more and
// collects them all. So parameters need not be listed, gradients flow through one real graph, segments nest,
// and the recomputation stops at the last tensor that is needed. Needs a SavedTensorEngineGuard.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/seam.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dtk::policies {

/// What checkpointing did so far in the process. Thread-safe to read.
struct CheckpointCounts {
  int64_t segments = 0;     // forward runs that were checkpointed
  int64_t recomputes = 0;   // segments run again
  int64_t early_stops = 0;  // of these, stopped at the last tensor needed
  int64_t dropped = 0;      // tensors that forward did not keep
};
CheckpointCounts checkpoint_counts();

/// True while the calling thread runs a segment again. Everything a forward pass changes besides its outputs
/// would otherwise change twice, with no error: running statistics, counters, quantizers' ranges. A module
/// with such state in a segment must ask, and leave it as it is when this is true; it must still save the
/// same tensors. For a batch norm in training mode: momentum = recomputing() ? 0.0 : 0.1.
bool recomputing();

/// Runs fn(inputs) as one segment and returns its outputs. In backward fn runs again on the same inputs, with
/// the random state (of the CPU and of each input's device), autocast state and module path of this call; it
/// must compute the same from them, read no other tensors that need a gradient than its inputs and
/// parameters, and change no state when recomputing(). Without grad mode this is fn(inputs). `path` names the
/// segment in errors.
///
/// Autocast's casts of weights are freed at the segment's end, not at the end of the forward pass: a weight
/// that is read again after it is cast again. Its gradient is then the sum of its uses in fp32, no longer in
/// bf16.
///
/// Backward throws c10::Error when an input was changed in place since, or when the recomputation saves other
/// tensors than forward did; what fn throws while it is recomputed passes unchanged. With retain_graph every
/// backward recomputes. Not noticed: weights changed in place between forward and backward (the recomputation
/// takes the new ones), and attention backends chosen for forward only. While a segment is recomputed nothing
/// else may draw from the default generators of its devices.
Tensors checkpoint(std::string_view path, const SubtreeFn& fn, Tensors&& inputs);

/// Several consecutive sub-trees as one segment: begin with the first, append the next ones. Tensors that one
/// call returns and a later one takes are inside the segment and are not kept.
class CheckpointChain {
 public:
  CheckpointChain();
  ~CheckpointChain();
  CheckpointChain(const CheckpointChain&) = delete;
  CheckpointChain& operator=(const CheckpointChain&) = delete;

  /// As checkpoint(), as part of this segment. Throws c10::Error when an input that an earlier call returned
  /// was changed in place since: a recomputation would not make that change.
  Tensors append(std::string_view path, const SubtreeFn& fn, Tensors&& inputs);
  /// At most so many bytes fewer are kept so far than by a plain forward pass: what was let go, without
  /// parameters, less what is kept of the inputs that a plain pass would not keep. 0 or less: none.
  int64_t most_saved() const;

 private:
  struct Frame;
  class DropLayer;
  class CollectLayer;
  friend struct Frame;
  std::shared_ptr<Frame> frame_;
};

}  // namespace dtk::policies
