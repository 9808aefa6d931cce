#include <c10/util/StringUtil.h>
#include <dtk/policies/internal/path_globs.h>
#include <dtk/policies/report.h>

#include <algorithm>
#include <utility>

namespace dtk::policies {
namespace {

// The next component of `path`, removed from it.
std::string_view take_component(std::string_view& path) {
  const size_t dot = path.find('.');
  const std::string_view first = path.substr(0, dot);
  path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  return first;
}

size_t components(std::string_view path) {
  return static_cast<size_t>(std::count(path.begin(), path.end(), '.')) + 1;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool lies_within(std::string_view path, std::string_view outer) {
  return path.size() > outer.size() && path.starts_with(outer) && path[outer.size()] == '.';
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, previous, current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) current[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::move(previous);
    previous = std::move(current);
    current.assign(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (same ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
  }
  return current[b.size()];
}

bool glob_matches(std::string_view pattern, std::string_view path) {
  if (components(pattern) != components(path)) return false;
  for (size_t left = components(pattern); left > 0; --left) {
    const std::string_view wanted = take_component(pattern), seen = take_component(path);
    if (wanted != "*" && wanted != seen) return false;
  }
  return true;
}

std::string nearest_paths(std::string_view name, std::vector<std::string> paths) {
  std::stable_sort(paths.begin(), paths.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  paths.resize(std::min<size_t>(3, paths.size()));
  return c10::Join(", ", paths);
}

std::vector<std::string> matching_paths(const std::vector<std::string>& patterns,
                                        const std::vector<std::string>& paths, const std::string& key) {
  for (const std::string& pattern : patterns) {
    const auto is_meant = [&](const std::string& path) { return glob_matches(pattern, path); };
    if (std::none_of(paths.begin(), paths.end(), is_meant)) {
      throw PolicyError(key, ": \"" + pattern + "\" matches no module of this model; near: " +
                                 nearest_paths(pattern, paths));
    }
  }
  std::vector<std::string> result;
  for (const std::string& path : paths) {
    const bool wanted = std::any_of(patterns.begin(), patterns.end(),
                                    [&](const std::string& pattern) { return glob_matches(pattern, path); });
    if (wanted) result.push_back(path);
  }
  return result;
}

}  // namespace dtk::policies
