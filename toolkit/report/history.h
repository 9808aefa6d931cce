// What log.jsonl says of a run, in memory: the steps that count, across all processes that trained into its
// folder.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtk {

/// One line "step" of the log (log.h says what each is).
struct LoggedStep {
  int64_t step = 0;
  double loss = 0, learning_rate = 0, gradient_norm = 0, images_per_second = 0, seconds = 0;
  std::optional<double> mfu;
  std::optional<int64_t> process_bytes = {}, counted_bytes = {};
};

struct LoggedValidation {
  int64_t step = 0;
  double loss = 0;
  std::map<std::string, double> scores = {};  // all other numbers of the line, by name
};

struct LoggedSamples {
  int64_t step = 0;
  std::string path;
};

/// A process, which starts or continues at `step`.
struct LoggedStart {
  int64_t step = 0;
  bool resumed = false;
  bool trained = false;     // a step is logged of it, if only as skipped
  double unix_seconds = 0;  // 0: the log does not say
};

/// What a resume changed.
struct LoggedChange {
  int64_t step = 0;  // the last one before it
  std::string text;
  bool of_result = false;  // the weights depend on it
};

/// That a step was refused memory, and the choice that the run went on with.
struct LoggedEscalation {
  int64_t step = 0;  // the last one before it
  std::string set;   // "memory.split = 2"
  std::optional<int64_t> planned_bytes = {}, room_bytes = {};
};

class RunHistory {
 public:
  RunHistory() = default;
  /// Of a whole log.
  explicit RunHistory(const std::string& log);

  /// Adds the next line. "resume" at step S takes back all that was logged of later steps: they are trained
  /// again. A line that cannot be read, as one that a crash has torn, is counted and left out; events
  /// without a meaning here are passed over.
  void add(std::string_view line);

  const std::vector<LoggedStart>& starts() const { return starts_; }
  const std::vector<LoggedStep>& steps() const { return steps_; }
  const std::vector<LoggedValidation>& validations() const { return validations_; }
  const std::vector<LoggedSamples>& samples() const { return samples_; }
  /// Steps that changed nothing.
  const std::vector<int64_t>& skipped() const { return skipped_; }
  const std::vector<LoggedEscalation>& escalations() const { return escalations_; }
  const std::vector<LoggedChange>& changes() const { return changes_; }
  int64_t unreadable_lines() const { return unreadable_; }

 private:
  std::vector<LoggedStart> starts_;
  std::vector<LoggedStep> steps_;
  std::vector<LoggedValidation> validations_;
  std::vector<LoggedSamples> samples_;
  std::vector<int64_t> skipped_;
  std::vector<LoggedEscalation> escalations_;
  std::vector<LoggedChange> changes_;
  int64_t unreadable_ = 0;
};

}  // namespace dtk
