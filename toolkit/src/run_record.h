// What a run leaves in its folder beside configuration and checkpoints: log.jsonl, samples, memory.json.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/toolkit/data_source.h>
#include <dtk/toolkit/memory_report.h>
#include <dtk/toolkit/run.h>
#include <dtk/toolkit/run_log.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace dtk {

/// "step-00001234", the name of what belongs to a step.
std::string step_name(int64_t step);

/// One reading of the training's scalars; the line "step" of log.jsonl (run_log.h says what each is).
struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  double images_per_second = 0;
  double seconds = 0;
  double wait_seconds = 0;
  std::optional<int64_t> peak_bytes;
};

/// Used by the thread that trains. Throws FileError.
class RunRecord {
 public:
  /// Opens the log of the folder, which must be this run's by now. `files` must outlive this.
  RunRecord(FileSystem& files, const std::filesystem::path& folder);

  struct Start {
    int64_t step = 0;
    std::string device;
    int64_t threads = 0;
    int64_t parameters = 0;
    std::string data = "";  // its description
    int64_t samples = 0;    // trained on
    int64_t held_out = 0;   // for validation
    DataRemarks remarks = {};
  };
  void start(bool resumed, const Start& start);
  void step(const StepRecord& record);
  /// The loss on the validation set after `step` steps.
  void validation(int64_t step, double loss);
  void checkpoint(int64_t step, const std::filesystem::path& path);
  /// `samples` (N, C, S, S) in [-1, 1], `columns` of each class. Returns the file.
  std::filesystem::path samples(int64_t step, const at::Tensor& samples, int64_t columns);
  void end(bool stopped, int64_t step, double seconds, double images_per_second);
  void memory(const MemoryReport& report) const;

  /// Where samples() will put those of `step`.
  std::filesystem::path samples_path(int64_t step) const;
  /// Makes the folder for samples.
  void prepare_samples();

 private:
  FileSystem& files_;
  const std::filesystem::path folder_;
  RunLog log_;
};

}  // namespace dtk
