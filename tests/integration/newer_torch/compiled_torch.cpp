// In the place of the planner's own.
#include <dtk/planner/torch_versions.h>

namespace dtk::planner {

TorchVersion compiled_torch() {
  return {2, 99};
}

}  // namespace dtk::planner
