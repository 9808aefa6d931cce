// What can go wrong for a user, and the exit code each kind ends with.
//
// Every message says where, what was seen, what is allowed and what to do. Libraries throw; only programs
// print and exit.
#pragma once
#include <stdexcept>
#include <string>

namespace dtk {

// Which code a wrong file has: `configuration` for checkpoints, weights and calibrations that are not there,
// weights of another model, and a calibration that is none or of other circumstances; `data` for anything
// about the data set, and for a file of weights that is none, damaged or of a kind that is not read;
// `failure` where another file is at fault (a damaged checkpoint, one of another version, a file not to be
// read or written).
enum class ExitCode : int {
  done = 0,
  failure = 1,        // anything not listed below
  configuration = 2,  // configuration or usage, weights and checkpoints that were named wrongly
  memory = 3,         // does not fit, out of memory
  data = 4,           // data files, files of weights
  stopped = 5,        // stopped by a signal: a checkpoint is complete, samples are not written
  ranks = 6,          // another rank failed without a word, or does not answer
};

/// Base of all errors a user can cause; `code` is what a program exits with.
class Error : public std::runtime_error {
 public:
  Error(ExitCode exit_code, const std::string& message) : std::runtime_error(message), code(exit_code) {}
  const ExitCode code;
};

struct ConfigError : Error {
  explicit ConfigError(const std::string& message) : Error(ExitCode::configuration, message) {}
};

struct DataError : Error {
  explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
};

/// A file that cannot be read or written, or that does not hold what it claims, such as a checkpoint.
struct FileError : Error {
  explicit FileError(const std::string& message) : Error(ExitCode::failure, message) {}
};

/// The first line of a message: the others of LibTorch's errors list operators and call stacks.
inline std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace dtk
