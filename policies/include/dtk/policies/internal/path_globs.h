// Which of a model's modules a pattern means.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

/// True if `pattern` means `path`: both are lists of components separated by dots, and "*" stands for exactly
/// one component.
bool glob_matches(std::string_view pattern, std::string_view path);

/// True if `pattern` means one of `paths`.
bool matches_any(std::string_view pattern, const std::vector<std::string>& paths);

/// The up to three of `paths` that are nearest to `name`, separated by commas.
std::string nearest_paths(std::string_view name, std::vector<std::string> paths);

/// The entries of `paths` that some pattern matches, in the order of `paths`, each once. Throws PolicyError
/// naming `key`, the pattern and the nearest paths when a pattern matches nothing.
std::vector<std::string> matching_paths(const std::vector<std::string>& patterns,
                                        const std::vector<std::string>& paths, const std::string& key);

}  // namespace dtk::policies
