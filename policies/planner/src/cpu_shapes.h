// Operators on CPU tensors by shapes alone, while a thread includes DispatchKey::Fake.
#pragma once

namespace dtk::planner {

/// Registers the fallback for the process.
void register_cpu_shapes();

}  // namespace dtk::planner
