// Defaults that depend on other keys.
#pragma once
#include "toolkit/config/config_io.h"

namespace dtk {

/// Gives model.learn_sigma, sample.sampler and sample.steps, where the user wrote none, what suits the
/// objective, the sampler and sample.respacing, and their origins the reason. Leaves alone what follows from
/// a value that check_rules() refuses.
void settle_defaults(LoadedConfig& loaded);

}  // namespace dtk
