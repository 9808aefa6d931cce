#include "hooks/engine_kernels.h"

#include <utility>
#include <vector>

namespace dtk::policies {
namespace {

// Filled by static objects, in any order.
std::vector<void (*)()>& waiting() {
  static auto* kernels = new std::vector<void (*)()>;  // leaked: a guard may be made after static destruction
  return *kernels;
}

}  // namespace

EngineKernels::EngineKernels(void (*add)()) {
  waiting().push_back(add);
}

void register_engine_kernels() {
  for (void (*const add)() : std::exchange(waiting(), {})) add();
}

}  // namespace dtk::policies
