#include "toolkit/run/messages.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"

namespace dtk {

std::string training_line(const ModelFacts& model, const RunFacts& facts, const std::filesystem::path& out) {
  return fmt::format("training {}, {:.2f} M parameters, on {}{} with {} into {}", model.model,
                     static_cast<double>(facts.parameters) / 1e6, facts.device,
                     facts.device_name.empty() ? "" : " (" + facts.device_name + ")",
                     count_text(facts.threads, "thread"), out.string());
}

std::vector<std::string> data_lines(const RunData& data, const ModelFacts& facts) {
  std::vector<std::string> lines = {"data: " + data.all->description()};
  const DataRemarks& remarks = data.remarks;
  if (remarks.synthetic) lines.push_back("SYNTHETIC: the samples were made up by a program");
  if (remarks.skipped > 0) {
    lines.push_back("skipped " + count_text(remarks.skipped, "corrupt file") +
                    (remarks.skipped == 1 ? ":" : ", among them:"));
    for (const std::string& reason : remarks.reasons) lines.push_back("  " + reason);
  }
  if (remarks.passed_over > 0) {
    lines.push_back(fmt::format("passed over {} that {} no image{} {}",
                                count_text(remarks.passed_over, "file"),
                                remarks.passed_over == 1 ? "is" : "are",
                                remarks.passed_over == 1 ? ":" : "s, the first:", remarks.first_passed_over));
  }
  if (remarks.loose > 0)
    lines.push_back("left out " + count_text(remarks.loose, "picture") + " beside the class folders");
  if (remarks.outside > 0) {
    lines.push_back(fmt::format("{} of the list lead{} out of its folder{} {}",
                                count_text(remarks.outside, "path"), remarks.outside == 1 ? "s" : "",
                                remarks.outside == 1 ? ":" : ", the first:", remarks.first_outside));
  }
  const std::string classes = classes_text(data.all->class_names());
  if (!classes.empty()) lines.push_back("classes: " + classes);
  const auto& training = data.split.training;
  const auto& held_out = data.split.held_out;
  if (held_out) {
    lines.push_back(fmt::format("validation: {} samples are held out, {} are trained on", held_out->size(),
                                training->size()));
  }
  const std::string unseen = unseen_classes(data.classes);
  if (!unseen.empty()) {
    lines.push_back(fmt::format("{} = {}, but labels of the data go to {}: {}", facts.classes_key,
                                data.classes.model, data.classes.data - 1, unseen));
  }
  return lines;
}

std::string classes_text(const std::vector<std::string>& names) {
  constexpr size_t most = 12;
  std::string text;
  for (size_t label = 0; label < names.size(); ++label) {
    if (names.size() > most && label == most - 2) {
      text += fmt::format(", {} more", names.size() - most + 1);
      label = names.size() - 1;
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", label, names[label]);
  }
  return text;
}

std::string unseen_classes(ClassCounts classes) {
  const auto [seen, all] = classes;
  if (seen >= all) return "";
  if (seen + 1 == all) return fmt::format("class {} is never learnt", seen);
  return fmt::format("classes {} to {} are never learnt", seen, all - 1);
}

std::string validation_line(int64_t step, const Validated& validated, int64_t samples, bool ema) {
  std::string text = fmt::format("validation at step {}: loss {:.4f}", step, validated.loss);
  for (const Score& score : validated.scores) text += fmt::format(", {} {:.4f}", score.name, score.value);
  return text + fmt::format(" ({} samples{})", samples, ema ? ", EMA weights" : "");
}

static std::string start_another(const std::filesystem::path& last_checkpoint) {
  return "Last good checkpoint: " + (last_checkpoint.empty() ? "none" : last_checkpoint.string()) +
         ". Start another run with a lower optimizer.lr, a longer schedule.warmup or a smaller "
         "optimizer.clip: a checkpoint continues with its own only";
}

std::string non_finite_text(int64_t first, int64_t last, const OptimizerOptions& options,
                            const std::filesystem::path& last_checkpoint) {
  return fmt::format(
      "the loss or a gradient became infinite or NaN in {}{}{}",
      first < last ? fmt::format("one of the steps {} to {}", first, last) : fmt::format("step {}", last),
      options.clip > 0 ? "; the weights were not changed by it. "
                       : "; with optimizer.clip = 0 it is looked for where a line is logged or a "
                         "checkpoint made, and nothing of it was saved. ",
      start_another(last_checkpoint));
}

std::string skipped_text(int64_t step, const std::string& samples) {
  return fmt::format(
      "step {} was skipped: its loss or a gradient was infinite or NaN, and no weight was changed; it was of "
      "the samples {} of those trained on",
      step, samples);
}

std::string first_of(std::vector<int64_t> numbers) {
  constexpr size_t max_named = 64;
  const bool more = numbers.size() > max_named;
  numbers.resize(std::min(numbers.size(), max_named));
  return c10::Join(", ", numbers) + (more ? ", ..." : "");
}

std::string weightless_text(int64_t steps, int64_t until) {
  return fmt::format(
      "{} up to step {} had samples of no weight, such as dialogues without an answer: passed over, "
      "and no weight was changed",
      count_text(steps, "step"), until);
}

std::string too_many_skipped_text(int64_t in_a_row, const TrainOptions& options,
                                  const std::filesystem::path& last_checkpoint) {
  return fmt::format(
             "{} steps in a row were skipped, as the loss or a gradient was infinite or NaN, more than "
             "train.most_skipped = {}; the weights were not changed by them. ",
             in_a_row, options.max_skipped) +
         start_another(last_checkpoint);
}

std::string policy_line(const policies::PolicyReport& report) {
  const int64_t held = report.device_bytes + report.host_bytes;
  return fmt::format("policy {}: {}, {}{}", report.policy, report.active ? "on" : "off", report.reason,
                     held > 0 ? " (holds " + readable_bytes(held) + ")" : "");
}

std::string resumed_line(const std::filesystem::path& checkpoint, int64_t step, bool by_clock) {
  return fmt::format("resumed from {} at step {}{}", checkpoint.string(), step,
                     by_clock ? "; train.seconds is set, so the clock decides when the run ends and the "
                                "result is not bit-equal to an uninterrupted run"
                              : "");
}

KeepGoing until_stopped(RunObserver& observer, std::function<bool()> stop_requested) {
  return [&observer, stop_requested = std::move(stop_requested)](int64_t done, int64_t steps) {
    if (stop_requested()) return false;
    observer.working("sampling", done, steps);
    return true;
  };
}

OpeningProgress until_opened(RunObserver& observer, std::function<bool()> stop_requested) {
  return
      [&observer, stop_requested = std::move(stop_requested)](const char* what, int64_t done, int64_t all) {
        if (stop_requested && stop_requested())
          throw Error(
              ExitCode::stopped,
              "stopped by a signal while the data were opened, before the first step; nothing was written");
        observer.working(what, done, all);
      };
}

std::string sample_command(const std::filesystem::path& checkpoint, const RunConfig& config,
                           const std::filesystem::path& out) {
  const ModelFacts facts = facts_of(config);
  return fmt::format("dit-sample --checkpoint {} {}{} --out {}", checkpoint.string(), facts.draw_again,
                     config.sample.ema ? "" : " --raw",
                     (facts.draws_folder ? out.parent_path() : out).string());
}

}  // namespace dtk
