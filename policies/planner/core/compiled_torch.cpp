// A file and a unit of its own, so that a test's program may bring another answer.
#include <dtk/planner/torch_versions.h>

namespace dtk::planner {

TorchVersion compiled_torch() {
  return {TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR};
}

}  // namespace dtk::planner
