// A timeline of a few steps: every operator, and on a GPU every kernel, with their sizes, by
// LibTorch's own profiler (Kineto), for chrome://tracing or ui.perfetto.dev.
#pragma once
#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace dtk {

/// Records the third to the fifth step that begin while it lives: the first ones take memory and kernels that
/// later steps find. For the thread that trains; one at a time in a process.
class StepTrace {
 public:
  static constexpr int64_t kWarmUp = 2, kSteps = 3;

  /// Throws FileError if `file` cannot be written. One that is there is written anew.
  StepTrace(std::filesystem::path file, c10::Device device);
  /// Of fewer steps nothing is written.
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  void begin_step();
  /// What to tell once the file is written; else "". Throws FileError.
  std::string end_step();
  /// At the end of a run: why there is no file; "" where there is.
  std::string why_none() const;

 private:
  const std::filesystem::path file_;
  const c10::Device device_;
  int64_t begun_ = 0;
  bool recording_ = false;
  std::optional<at::RecordFunction> step_;  // its span in the timeline
};

}  // namespace dtk
