#include "set/seam_checks.h"

#include <ATen/core/grad_mode.h>
#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/internal/recomputing.h>
#include <dtk/policies/report.h>

#include <utility>

namespace dtk::policies {

void SeamUse::check(std::string_view path) const {
  if (paths.find(path) == paths.end()) {
    const std::vector<std::string> known(paths.begin(), paths.end());
    throw PolicyError(
        "the module " + std::string(path) +
        " runs through the seam, but the policies were not told of it; add it to Subject.paths" +
        (known.empty() ? ", which is empty" : " (near: " + nearest_paths(path, known) + ")"));
  }
  if (!needs_scope.empty() && scopes_alive == 0 && at::GradMode::is_enabled() && !recomputing()) {
    throw PolicyError("the module " + std::string(path) +
                      " runs outside of PolicySet::forward_scope(), which policies." + needs_scope +
                      " needs; hold the scope during the forward pass, or switch that policy off");
  }
}

Run run_checked(std::shared_ptr<const SeamUse> use, Run inner) {
  return [use = std::move(use), inner = std::move(inner)](std::string_view path, const ModuleFn& fn,
                                                          Tensors&& inputs) {
    use->check(path);
    return inner(path, fn, std::move(inputs));
  };
}

}  // namespace dtk::policies
