// Which of a model's modules a pattern means, and what a misspelt name may have meant.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// True if `pattern` means `path`: both are lists of components separated by dots, and "*" stands for exactly
/// one component.
bool glob_matches(std::string_view pattern, std::string_view path);

/// Whether `path`, of a module or a parameter, lies below the module `outer`; not where it is that.
bool lies_within(std::string_view path, std::string_view outer);

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, ignoring ASCII case.
size_t edit_distance(std::string_view a, std::string_view b);

/// The up to three of `paths` that are nearest to `name`, separated by commas.
std::string nearest_paths(std::string_view name, std::vector<std::string> paths);

/// The entries of `paths` that some pattern matches, in the order of `paths`, each once. Throws PolicyError
/// naming `key`, the pattern and the nearest paths when a pattern matches nothing.
std::vector<std::string> matching_paths(const std::vector<std::string>& patterns,
                                        const std::vector<std::string>& paths, const std::string& key);

}  // namespace dtk::policies
