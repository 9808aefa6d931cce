#include <dtk/policies/internal/repeated_modules.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace dtk::policies {
namespace {

// Names below the module's path, with their shapes.
using Signature = std::vector<std::pair<std::string, std::vector<int64_t>>>;

std::string_view parent_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

Signature signature_of(const std::string& path, const NamedTensors& parameters) {
  Signature found;
  for (const auto& [name, tensor] : parameters) {
    if (!name.starts_with(path + ".") || !tensor.defined()) continue;
    found.emplace_back(name.substr(path.size() + 1), tensor.sizes().vec());
  }
  return found;
}

// Layers have at most one matrix.
bool is_one_layer(const Signature& signature) {
  std::set<std::string_view> layers;
  int64_t matrices = 0;
  for (const auto& [name, shape] : signature) {
    layers.insert(parent_of(name));
    matrices += shape.size() >= 2 ? 1 : 0;
  }
  return layers.size() < 2 && matrices < 2;
}

}  // namespace

std::vector<std::string> repeated_modules(const std::vector<std::string>& paths,
                                          const NamedTensors& parameters) {
  std::map<std::string_view, std::pair<std::string, Signature>> last;  // of each parent
  std::set<std::string> repeated;
  for (const std::string& path : paths) {
    Signature signature = signature_of(path, parameters);
    if (signature.empty()) continue;  // such as an activation between two layers
    auto& [sibling, its] = last[parent_of(path)];
    if (!sibling.empty() && sibling != path && its == signature && !is_one_layer(signature))
      repeated.insert({sibling, path});
    sibling = path;
    its = std::move(signature);
  }
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    const auto holds = [&](const std::string& outer) { return path.starts_with(outer + "."); };
    if (repeated.count(path) == 0 || std::any_of(repeated.begin(), repeated.end(), holds)) continue;
    if (std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
  }
  return found;
}

}  // namespace dtk::policies
