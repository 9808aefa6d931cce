#include "toolkit/core/suggestions.h"

#include <dtk/policies/internal/path_globs.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace dtk {
namespace {

std::string last_part(const std::string& key) {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? key : key.substr(dot + 1);
}

// Edits that still count as a slip; short names are near to everything otherwise.
size_t slips(const std::string& name) {
  return std::max<size_t>(name.size() >= 4 ? 2 : 1, name.size() / 3);
}

}  // namespace

std::vector<std::string> near_names(const std::string& name, const std::vector<std::string>& known) {
  size_t best = slips(name);
  std::vector<std::string> near;
  for (const std::string& candidate : known) {
    const size_t distance = policies::edit_distance(name, candidate);
    if (distance > best) continue;
    if (distance < best) near.clear();
    best = distance;
    near.push_back(candidate);
  }
  return near;
}

std::vector<std::string> near_keys(const std::string& key, const std::vector<std::string>& known) {
  const std::string name = last_part(key);
  const std::string table = parent_of(key);
  size_t best = std::numeric_limits<size_t>::max();
  bool own = false;
  std::vector<std::string> near;
  for (const std::string& candidate : known) {
    const bool same_table = parent_of(candidate) == table;
    const size_t distance = policies::edit_distance(name, last_part(candidate));
    const size_t limit = same_table ? slips(name) : (name.size() >= 4 ? 1 : 0);
    if (distance > limit || distance > best) continue;
    if (distance == best && own && !same_table) continue;
    if (distance < best || (same_table && !own)) near.clear();
    best = distance;
    own = same_table;
    near.push_back(candidate);
  }
  // A misspelt table has keys of the same names as others.
  std::vector<std::string> tables;
  std::transform(near.begin(), near.end(), std::back_inserter(tables), parent_of);
  if (const auto meant = near_names(table, tables); !meant.empty())
    std::erase_if(near, [&](const std::string& one) { return parent_of(one) != meant.front(); });
  return near;
}

std::string parent_of(const std::string& key) {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

}  // namespace dtk
