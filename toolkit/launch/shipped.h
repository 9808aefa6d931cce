// The configurations that are shipped with the programs.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace dtk::launch {

/// Their folder, for the program of this path: in the checkout of a build folder, or where a wheel or an
/// installation has it. Empty: none.
std::filesystem::path configurations_of(const std::filesystem::path& program);

/// What --config takes for them: file names without .toml, in order.
std::vector<std::string> configuration_names(const std::filesystem::path& folder);

}  // namespace dtk::launch
