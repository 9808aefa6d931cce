#include <dtk/policies/module_path.h>

#include <utility>

namespace dtk::policies {
namespace {
thread_local std::string current_path;
}

ModulePathScope::ModulePathScope(std::string_view path)
    : previous_(std::exchange(current_path, std::string(path))) {}

ModulePathScope::~ModulePathScope() {
  current_path = std::move(previous_);
}

const std::string& module_path() {
  return current_path;
}

Run run_with_module_path() {
  return [](std::string_view path, const SubtreeFn& fn, Tensors&& inputs) {
    ModulePathScope scope(path);
    return fn(std::move(inputs));
  };
}

}  // namespace dtk::policies
