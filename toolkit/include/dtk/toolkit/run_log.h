// log.jsonl: one JSON object a line, written through to the file as it happens.
//
// {"event": "start" | "resume", "step", "device", "threads", "parameters", "data", "samples", "held_out"}
//                    data is the description, samples are those trained on, held_out those of validation;
//                    with "synthetic": 1 for made-up samples, and with "skipped", "skipped_first" (their
//                    paths and reasons) where corrupt files were left out
// {"event": "step", "step", "loss", "lr", "gradient_norm", "images_per_second", "seconds", "wait_seconds",
//  "peak_bytes"}     every train.log_every steps; loss is the mean since the line before, the gradient norm
//  is
//                    that of the last step before clipping, wait_seconds is the training time spent waiting
//                    for the loader so far; no peak_bytes with memory.ledger = false
// {"event": "validate", "step", "loss"}     mean over the held-out samples
// {"event": "checkpoint", "step", "path"}
// {"event": "end" | "stopped", "step", "seconds", "images_per_second"}
#pragma once
#include <dtk/toolkit/file_system.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dtk {

class RunLog {
 public:
  using Value = std::variant<int64_t, double, std::string>;
  using Fields = std::vector<std::pair<std::string, Value>>;

  /// Appends to `path`.
  RunLog(FileSystem& files, const std::filesystem::path& path);
  ~RunLog();
  void write(const std::string& event, const Fields& fields);

 private:
  std::unique_ptr<WritableFile> file_;
};

}  // namespace dtk
