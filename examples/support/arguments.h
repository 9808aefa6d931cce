// Command lines of the examples that are programs of their own, and what their users are told.
#pragma once
#include <c10/util/Exception.h>

#include <cxxopts.hpp>
#include <iostream>
#include <string>

#include "toolkit/core/errors.h"

namespace examples {

/// What was given. Throws dtk::ConfigError for an option that is not known or given twice, a value that does
/// not fit it, and an argument that belongs to no option.
inline cxxopts::ParseResult parsed(cxxopts::Options options, int argc, const char* const* argv) {
  try {
    cxxopts::ParseResult given = options.parse(argc, argv);
    if (!given.unmatched().empty())
      throw dtk::ConfigError("unexpected argument \"" + given.unmatched().front() + "\"; see --help");
    for (const cxxopts::KeyValue& one : given.arguments()) {
      if (given.count(one.key()) > 1)
        throw dtk::ConfigError("--" + one.key() + " is given " + std::to_string(given.count(one.key())) +
                               " times; give it once");
    }
    return given;
  } catch (const cxxopts::exceptions::exception& error) {
    throw dtk::ConfigError(std::string(error.what()) + "; see --help");
  }
}

/// Runs `act`, which plans a job. Throws dtk::Error with ExitCode::memory where the machine has no addresses
/// for the plan: it uses next to no memory, but each tensor has its place.
template <class Act>
void of_planned(const Act& act) {
  try {
    act();
  } catch (const c10::OutOfMemoryError& error) {
    throw dtk::Error(dtk::ExitCode::memory, std::string("this machine cannot hold the plan itself: ") +
                                                error.what_without_backtrace() +
                                                "; raise that limit, or give smaller sizes");
  }
}

/// What main() of program `name` returns: `run`'s exit code, or that of its error, which is told.
template <class Run>
int exit_code_of(const char* name, const Run& run) {
  const auto told = [&](const std::exception& error, dtk::ExitCode code) {
    std::cerr << name << ": " << error.what() << "\n";
    return static_cast<int>(code);
  };
  try {
    run();
    return static_cast<int>(dtk::ExitCode::done);
  } catch (const dtk::Error& error) {
    return told(error, error.code);
  } catch (const std::exception& error) {
    return told(error, dtk::ExitCode::failure);
  }
}

}  // namespace examples
