// What a program finds beside itself, wherever it is installed.
#pragma once
#include <string>

namespace dtk {

/// The file that --config means: `given`, or, where no file has that name, the shipped configuration of the
/// name. Throws ConfigError for a name that is neither.
std::string config_file(const std::string& given);

/// What dit-train --doctor prints of this process: the LibTorch that it runs with, and the machine.
std::string doctor();

}  // namespace dtk
