#include <c10/util/StringUtil.h>
#include <dtk/planner/torch_versions.h>

#include <algorithm>
#include <iterator>

namespace dtk::planner {
namespace {

std::string text_of(TorchVersion version) {
  return c10::str(version.major, ".", version.minor);
}

}  // namespace

const PlannedTorch& planned_torch(TorchVersion version) {
  const auto* found = std::begin(kPlannedTorch);
  for (const PlannedTorch& known : kPlannedTorch) {
    if (known.version <= version) found = &known;
  }
  return *found;
}

std::string unplanned_torch(TorchVersion version) {
  if (planned_torch(version).version == version) return "";
  return c10::str(
      "plans know LibTorch ", text_of(std::begin(kPlannedTorch)->version), " to ",
      text_of(std::prev(std::end(kPlannedTorch))->version), ", and this is built with ", text_of(version),
      ", whose operators may allocate other bytes. Build with one of those; or check the new one: that "
      "cuda_operators_test, cpu_kernels_test, dispatch_keys_test and plan_accuracy_test pass once it is in "
      "the "
      "table of dtk/planner/torch_versions.h, and what cuDNN its wheel asks for");
}

}  // namespace dtk::planner
