// log.jsonl: one JSON object a line, written through to the file as it happens.
//
// {"event": "start" | "resume", "step", "device", "threads", "ranks", "parameters",
//  "tokens_per_image", "flops_per_image", "peak_flops", "time", "data", "samples", "held_out"}
//      of a process that trains from `step` on, "changes" and "changes_of_result" what a resume changed that
//      the weights do not, and do depend on. "resume" at step S takes back what the lines before say of
//      later steps. parameters: trainable; flops_per_image: of a training step, where known
//      (families/dit/flops.h; of the driving model by the plan at the start); peak_flops: of the device,
//      per second, where known or given (log.peak_tflops); time: seconds since 1970; data: their description;
//      samples: those trained on; held_out: those of validation. With "synthetic": 1 for made-up samples, and
//      with "skipped", "skipped_first" (paths and reasons) where corrupt files were left out
// {"event": "step", "step", "loss", "lr", "gradient_norm", "images_per_second", "seconds", "wait_seconds",
//  "wait_per_step", "peak_bytes", "process_bytes", "counted_bytes", "mfu"}
//      every train.log_every steps, at steps 1, 2, 5, 10, 20, 50 ... below that (is_log_step), and before a
//      checkpoint and a validation. loss: mean since the line before; lr: of the
//      next step; gradient_norm: of the last step, before clipping (where train.seconds or a signal ended the
//      training and optimizer.clip is 0: of an earlier one); images_per_second: since the line before;
//      seconds: training time so far, of all processes; wait_seconds: of this process's, spent waiting for
//      the loader; wait_per_step: the same in seconds a step since the line before; peak_bytes: of tensors on
//      the training device in this process so far, not with memory.ledger = false; mfu: model FLOPs
//      utilisation in [0, 1], where peak_flops is known
//      process_bytes: of the machine's memory, that the process holds; counted_bytes: those of them that the
//      ledger counts, alive now, not with memory.ledger = false
// {"event": "skipped", "step", "samples"}
//      its loss or a gradient was infinite or NaN, and it changed nothing (train.on_not_finite = "skip");
//      samples: the numbers of those it was of, among those trained on. Steps that were skipped are in no
//      "loss" and no "gradient_norm"
// {"event": "slow_step", "step", "steps", "seconds", "median_seconds", "data_seconds",
// "device_seconds",
//  "disk_seconds"}
//      the `steps` steps up to this one took more than train.slow_step times the median of the last 101:
//      seconds a step, and how many of them it waited for the loader, for the scalars that are read, for this
//      file. One step at a time on the CPU; on a device all since the line before, together
// {"event": "memory_grows", "step", "bytes", "steps"}
//      process_bytes less counted_bytes rose by so many within so many steps, 1,000 or, where lines are rarer
//      than 250 steps, more: in each 250 of them
// {"event": "validate", "step", "loss"}       mean over the held-out samples; of the driving model also
//      "ego_lateral", "ego_longitudinal" ...: the scores of the trajectories it draws for them
//      (metrics.h), in m and m^2
// {"event": "sample", "step", "path"}         a grid as a PNG, or latents or trajectories, as safetensors
// {"event": "checkpoint", "step", "path"}
// {"event": "end" | "stopped", "step", "seconds", "run_seconds", "images_per_second"}
//      seconds: of training, of this process; run_seconds: of all processes of the run,
//      as train.seconds counts them; images_per_second: of this process
// {"event": "out_of_memory", "step", "bytes", "asked_by", "phase", "module_path", "alive_bytes"}
//      the run does not fit; the ledger refused `bytes` asked for by this operator or owner, with so many
//      alive; without the ledger's word only "step"
// {"event": "escalated", "step", "set", "planned_bytes", "room_bytes", "bytes", "asked_by", "phase",
//  "module_path", "alive_bytes"}
//      the step after `step` was refused memory (`bytes` and what follows, as in "out_of_memory", where the
//      ledger refused) and taken back, or `step` itself was found to have taken too much; the run goes on
//      with `set`, "memory.split = 2", planned to take so much of the room there is, where these are known
//      (memory.on_out_of_memory = "escalate"). "checkpoint" follows; wait_seconds begins anew
// {"event": "failed", "step", "reason"}
//      an error ended the run after `step` steps: what dit-train then printed
//
// A crash may leave a last line without its end; whoever appends then begins a new line.
#pragma once
#include <dtk/policies/enum_text.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "toolkit/io/file_system.h"

namespace dtk {

/// In the folder of its run.
constexpr char log_name[] = "log.jsonl";
inline constexpr uint64_t max_log_bytes = uint64_t{4} << 30;  // ten million lines

/// Whether step `step` >= 1 is logged: every `every` steps, and before the first of those at 1, 2 and 5 times
/// the powers of ten, where the loss falls fastest and a short run would have no curve.
bool is_log_step(int64_t step, int64_t every);

enum class Logged {
  start,
  resume,
  step,
  skipped,
  slow_step,
  memory_grows,
  validate,
  sample,
  checkpoint,
  end,
  stopped,
  out_of_memory,
  escalated,
  failed
};
constexpr auto enum_texts(Logged) {
  return std::array{"start",  "resume",     "step", "skipped", "slow_step",     "memory_grows", "validate",
                    "sample", "checkpoint", "end",  "stopped", "out_of_memory", "escalated",    "failed"};
}

class RunLog {
 public:
  using Value = std::variant<int64_t, double, std::string>;
  using Fields = std::vector<std::pair<std::string, Value>>;

  /// Appends to `path`, on a line of its own.
  RunLog(FileSystem& files, const std::filesystem::path& path);
  /// Returns the line, without its end.
  std::string write(Logged event, const Fields& fields);

 private:
  std::unique_ptr<WritableFile> file_;
};

}  // namespace dtk
