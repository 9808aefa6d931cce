// Which modules' weights wait for them.
#pragma once
#include <dtk/policies/shards.h>

#include <string>
#include <string_view>
#include <vector>

namespace dtk::policies {

bool is_among(const std::vector<std::string>& all, const std::string& one);

/// The innermost of the modules that holds the parameter; "": none.
std::string innermost_module(std::string_view parameter, const std::vector<std::string>& modules);

/// Of the layout's modules those that a pattern names, or that lie in one that it names. Throws PolicyError
/// for a pattern that names nothing.
std::vector<std::string> targets_of(const ShardLayout& layout);

}  // namespace dtk::policies
