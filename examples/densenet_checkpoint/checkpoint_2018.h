// The checkpointing of 2018 (csrhddlam/pytorch-checkpoint), written for comparison: an autograd function that
// runs the segment without a graph in forward, and runs and differentiates it anew in backward.
//
// What dtk::policies::checkpoint() does besides, and this does not: random numbers and autocast of the first
// pass, inputs that need no gradient, a check that inputs were not changed since, early release of the
// inputs, double backward, and parameters that nobody lists.
#pragma once
#include <dtk/policies/seam.h>

#include "support/training_memory.h"

namespace examples {

/// Runs fn(inputs). All inputs and outputs must need a gradient, and every parameter that fn uses must be in
/// `parameters`: one that is not gets no gradient, and nobody says so. Inputs are kept where no saved-tensor
/// hook sees them, until the whole graph dies; `saved` is told.
dtk::policies::Tensors checkpoint_2018(const dtk::policies::ModuleFn& fn,
                                       const dtk::policies::Tensors& inputs,
                                       const dtk::policies::Tensors& parameters, SavedBytes& saved);

}  // namespace examples
