// Whether a thread computes for the forward pass or recomputes for backward.
#pragma once
#include <dtk/policies/internal/scoped.h>

namespace dtk::policies {

/// True while the calling thread recomputes a segment. Batch and instance norms need not ask: the engine
/// finds the running statistics and integer counters (`n += 1`) that a segment changes and leaves them alone
/// when it is recomputed. Other state that a forward pass changes would change twice, with no error: averages
/// of one's own, quantizers' ranges. A module with such state in a segment must ask, and leave it as it is
/// when this is true; it must still save the same tensors.
bool recomputing();

/// While alive, recomputing() is true on this thread.
class RecomputingScope {
 public:
  [[nodiscard]] RecomputingScope();

 private:
  const ScopedValue<bool> again_;
};

}  // namespace dtk::policies
