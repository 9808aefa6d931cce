// Which sub-tree of the model this thread is in, e.g. "blocks.3". The ledger reports by it.
#pragma once
#include <dtk/policies/seam.h>

#include <string>
#include <string_view>

namespace dtk::policies {

class ModulePathScope {
 public:
  [[nodiscard]] explicit ModulePathScope(std::string_view path);
  ~ModulePathScope();
  ModulePathScope(const ModulePathScope&) = delete;
  ModulePathScope& operator=(const ModulePathScope&) = delete;

 private:
  std::string previous_;
};

/// Path of the innermost scope of this thread; "" outside of all.
const std::string& module_path();

/// A seam function that runs each sub-tree within its ModulePathScope.
Run run_with_module_path();

}  // namespace dtk::policies
