// Guesses what a misspelt name was meant to be.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtk {

/// The names nearest to `name`, all at the same distance; empty if none is near.
std::vector<std::string> near_names(const std::string& name, const std::vector<std::string>& known);

/// As near_names, for dotted keys ("train.batch"): the last part is compared. A key of another table counts
/// only if its last part is equal or one edit away; among equally near ones the own table wins, then
/// the one whose name is near.
std::vector<std::string> near_keys(const std::string& key, const std::vector<std::string>& known);

/// "train" of "train.steps", "" of "train".
std::string parent_of(const std::string& key);

}  // namespace dtk
