// Dropout's masks on the CPU, drawn by all threads.
//
// LibTorch draws them on one thread, one number after the other (with MKL on Intel's processors alone by all
// of them); of a driving model's training step on two cores of another make that was half. Here a mask
// costs the default generator one draw, the key of a sequence of which each element is a pure function of its
// place: the same for any number of threads, and again when a segment is recomputed from the generator's
// state.
#pragma once
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace dtk {

/// While alive, aten::bernoulli_ with one probability, by which dropout makes its masks, draws so on this
/// thread: for dense fp32 and bf16 tensors on the CPU that need no gradient; all others as ever. Frequencies
/// are exact to 2^-32. Nothing else is computed, kept or allocated otherwise.
class DropoutMaskScope {
 public:
  [[nodiscard]] DropoutMaskScope();

 private:
  const c10::impl::IncludeDispatchKeyGuard drawn_;
};

/// The kernel that DropoutMaskScope needs; it does this itself, but LibTorch's tables have no lock for
/// readers: before other threads run operators. Later calls do nothing. Throws where its key is taken.
void register_dropout_masks();

}  // namespace dtk
