// Command lines of the examples.
#pragma once
#include <dtk/toolkit/errors.h>

#include <cxxopts.hpp>
#include <string>

namespace examples {

/// What was given. Throws dtk::ConfigError for an option that is not known, a value that does not fit it, and
/// an argument that belongs to no option.
inline cxxopts::ParseResult parsed(cxxopts::Options options, int argc, const char* const* argv) {
  try {
    cxxopts::ParseResult given = options.parse(argc, argv);
    if (!given.unmatched().empty())
      throw dtk::ConfigError("unexpected argument \"" + given.unmatched().front() + "\"; see --help");
    return given;
  } catch (const cxxopts::exceptions::exception& error) {
    throw dtk::ConfigError(std::string(error.what()) + "; see --help");
  }
}

}  // namespace examples
