// Which module of the model this thread is in, e.g. "blocks.3". The ledger reports by it.
#pragma once
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/seam.h>

#include <string>
#include <string_view>

namespace dtk::policies {

class ModulePathScope : NotCopied {
 public:
  [[nodiscard]] explicit ModulePathScope(std::string_view path);
  ~ModulePathScope();

 private:
  std::string previous_;
};

/// Path of the innermost scope of this thread; "" outside of all.
const std::string& module_path();

/// While alive, the process remembers in which scope each node of an autograd graph is made: two numbers and
/// a path for each scope. Guards may nest.
class NodePathsGuard : NotCopied {
 public:
  [[nodiscard]] NodePathsGuard();
  ~NodePathsGuard();
};

/// What this thread does for backward. Needs a NodePathsGuard since the graph was made.
struct BackwardPlace {
  bool active = false;    // a node's backward runs on this thread
  std::string path = {};  // where the node was made; "" outside of all scopes
};
BackwardPlace backward_place();

/// A seam function that runs each module within its ModulePathScope.
Run run_with_module_path();

}  // namespace dtk::policies
