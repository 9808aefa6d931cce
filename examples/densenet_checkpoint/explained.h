// Why recomputing DenseNet's segments lowers what it keeps, and each by how much.
#pragma once
#include <dtk/planner/explain.h>

#include "densenet_checkpoint/comparison.h"

namespace examples {

/// Plans two steps of compare()'s training, where nothing is computed, plainly and with the segments that
/// Form::checkpointed has. Throws std::invalid_argument for a depth that is none.
dtk::planner::Explanation explain(const Settings& settings);

}  // namespace examples
