// Trained weights of a DiT.
#pragma once
#include <dtk/models/dit.h>

#include "toolkit/checkpoint/weights.h"

namespace dtk::dit {

/// Throws ConfigError, from the weights' place on, if the weights are not those of this model (which may be
/// on the meta device): all names that are missing, unknown, or of another shape or type, the first few of
/// each written out, and what to set where classes, position table, size or learn_sigma differ. Parameters
/// that are not trained, such as pos_embed, may be missing; the model makes its own.
void check_fit(const Weights& weights, const models::Dit& model);

}  // namespace dtk::dit
