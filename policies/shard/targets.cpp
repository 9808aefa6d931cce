#include "shard/targets.h"

#include <dtk/policies/internal/path_globs.h>

#include <algorithm>

namespace dtk::policies {

bool is_among(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::string innermost_module(std::string_view parameter, const std::vector<std::string>& modules) {
  std::string found;
  for (const std::string& module : modules)
    if (lies_within(parameter, module) && module.size() > found.size()) found = module;
  return found;
}

std::vector<std::string> targets_of(const ShardLayout& layout) {
  if (layout.modules.empty() && layout.targets == ShardLayout().targets) return {};
  std::vector<std::string> paths;
  for (const std::string& module : layout.modules) {
    for (size_t end = module.find('.'); end != module.npos; end = module.find('.', end + 1))
      if (!is_among(paths, module.substr(0, end))) paths.push_back(module.substr(0, end));
    if (!is_among(paths, module)) paths.push_back(module);
  }
  const std::vector<std::string> named = matching_paths(layout.targets, paths, "policies.shard.targets");
  std::vector<std::string> targets;
  for (const std::string& module : layout.modules) {
    const bool is_named = std::any_of(named.begin(), named.end(), [&](const std::string& path) {
      return module == path || lies_within(module, path);
    });
    if (is_named) targets.push_back(module);
  }
  return targets;
}

}  // namespace dtk::policies
