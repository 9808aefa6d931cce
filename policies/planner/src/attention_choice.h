// Which attention kernel LibTorch takes on a CUDA device of compute capability 8.0 or higher.
#pragma once
#include <torch/library.h>

namespace dtk::planner {

/// Installs the choice for the simulated device. `aten`: a library for DispatchKey::CUDA.
void register_attention_choice(torch::Library& aten);

}  // namespace dtk::planner
