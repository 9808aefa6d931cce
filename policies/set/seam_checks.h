// How a program uses the seam that its policies were put into. What it forgets would leave a policy without
// effect, and nobody would notice.
#pragma once
#include <dtk/policies/policy.h>
#include <dtk/policies/seam.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// Shared by a set of policies and the seam it was put into. Threads may run modules at once.
struct SeamUse {
  std::set<std::string, std::less<>> paths;  // constant once the policies are in
  std::string needs_scope;  // as paths: a policy that acts within a forward scope only, or ""
  std::atomic<int64_t> scopes_alive{0};
  std::atomic<int64_t> training_scopes{0};  // begun so far, with gradients
  std::atomic<int64_t> steps{0};

  /// Throws PolicyError if the module is none of `paths`, and if a training pass that needs a scope runs
  /// outside of one.
  void check(std::string_view path) const;
  /// True if several training passes ran and the policies heard of no optimizer step.
  bool steps_forgotten() const { return training_scopes > 1 && steps == 0; }
};

/// `inner`, checked before each module.
Run run_checked(std::shared_ptr<const SeamUse> use, Run inner);

}  // namespace dtk::policies
