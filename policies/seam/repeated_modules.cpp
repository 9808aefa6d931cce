#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/internal/repeated_modules.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
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
    if (!tensor.defined() || !lies_within(name, path)) continue;
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

// Those that are numbered at the same place of the tree, at least two.
std::vector<std::string> numbered(const std::vector<std::string>& paths) {
  const auto is_numbered = [](std::string_view path) {
    const std::string_view name = path.substr(path.rfind('.') + 1);  // all of a path without a dot
    return name.find_first_not_of("0123456789") == std::string_view::npos;
  };
  std::map<std::string_view, int64_t> siblings;
  for (const std::string& path : paths)
    if (is_numbered(path)) ++siblings[parent_of(path)];
  std::vector<std::string> found;
  for (const std::string& path : paths)
    if (is_numbered(path) && siblings[parent_of(path)] > 1) found.push_back(path);
  return found;
}

int64_t elements_below(const std::string& path, const NamedTensors& parameters) {
  int64_t count = 0;
  for (const auto& [name, tensor] : parameters)
    if (tensor.defined() && lies_within(name, path)) count += tensor.numel();
  return count;
}

// Of `repeated` modules the level to recompute at: those within a repeated one where they are more and most
// of it, as the blocks of a tower or a stage; else the one that they lie in.
class Levels {
 public:
  Levels(const std::set<std::string>& repeated, const NamedTensors& parameters)
      : repeated_(repeated), parameters_(parameters) {}

  std::set<std::string> chosen() const {
    std::set<std::string> found;
    for (const std::string& path : repeated_) {
      if (!is_within_another(path, repeated_)) add(path, found);
    }
    return found;
  }

 private:
  static bool is_within_another(const std::string& path, const std::set<std::string>& others) {
    return std::any_of(others.begin(), others.end(),
                       [&](const std::string& outer) { return lies_within(path, outer); });
  }

  void add(const std::string& path, std::set<std::string>& found) const {
    std::set<std::string> inner;
    for (const std::string& one : repeated_)
      if (lies_within(one, path)) inner.insert(one);
    std::erase_if(inner, [&, all = inner](const std::string& one) { return is_within_another(one, all); });
    int64_t of_inner = 0;
    for (const std::string& one : inner) of_inner += elements_below(one, parameters_);
    if (inner.size() < 2 || 2 * of_inner < elements_below(path, parameters_)) {
      found.insert(path);
      return;
    }
    for (const std::string& one : inner) add(one, found);
  }

  const std::set<std::string>& repeated_;
  const NamedTensors& parameters_;
};

}  // namespace

std::vector<std::string> repeated_modules(const std::vector<std::string>& paths,
                                          const NamedTensors& parameters) {
  if (!are_named_by_paths(parameters, paths)) return numbered(paths);
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
  const std::set<std::string> chosen = Levels(repeated, parameters).chosen();
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    if (chosen.count(path) > 0 && std::find(found.begin(), found.end(), path) == found.end())
      found.push_back(path);
  }
  return found;
}

bool are_named_by_paths(const NamedTensors& parameters, const std::vector<std::string>& paths) {
  return std::any_of(parameters.begin(), parameters.end(), [&](const auto& parameter) {
    return std::any_of(paths.begin(), paths.end(),
                       [&](const std::string& path) { return lies_within(parameter.first, path); });
  });
}

}  // namespace dtk::policies
