// Which attention kernel LibTorch takes on a CUDA device of compute capability 8.0 or higher.
#pragma once

namespace dtk::planner {

/// Installs the choice for the simulated device.
void register_attention_choice();

}  // namespace dtk::planner
