#include "toolkit/run/messages.h"

#include <algorithm>

#include "toolkit/core/format.h"
#include "toolkit/train/model_family.h"

namespace dtk {

std::vector<std::string> data_lines(const RunData& data) {
  std::vector<std::string> lines = {"data: " + data.all->description()};
  const DataRemarks& remarks = data.remarks;
  if (remarks.synthetic) lines.push_back("SYNTHETIC: the samples were made up by a program");
  if (remarks.skipped > 0) {
    lines.push_back(remarks.skipped == 1
                        ? "skipped 1 corrupt file:"
                        : "skipped " + std::to_string(remarks.skipped) + " corrupt files, among them:");
    for (const std::string& reason : remarks.reasons) lines.push_back("  " + reason);
  }
  const auto& [training, held_out] = data.split;
  if (held_out) {
    lines.push_back(fmt::format("validation: {} samples are held out, {} are trained on", held_out->size(),
                                training->size()));
  }
  const std::string unseen = unseen_classes(data.classes);
  if (!unseen.empty()) {
    lines.push_back(fmt::format("model.classes = {}, but labels of the data go to {}: {}", data.classes.model,
                                data.classes.data - 1, unseen));
  }
  return lines;
}

std::string unseen_classes(ClassCounts classes) {
  const auto [seen, all] = classes;
  if (seen >= all) return "";
  if (seen + 1 == all) return "class " + std::to_string(seen) + " is never learnt";
  return fmt::format("classes {} to {} are never learnt", seen, all - 1);
}

std::string validation_line(int64_t step, const Validated& validated, int64_t samples, bool ema) {
  const auto named = [](const std::string& name, double value) {
    return fmt::format("{} {:.4f}", name, value);
  };
  std::string text = "validation at step " + std::to_string(step) + ": " + named("loss", validated.loss);
  for (const Score& score : validated.scores) text += ", " + named(score.name, score.value);
  return text + " (" + std::to_string(samples) + (ema ? " samples, EMA weights)" : " samples)");
}

std::string sample_command(const std::filesystem::path& checkpoint, const RunConfig& config,
                           const std::filesystem::path& out) {
  const ModelFacts facts = facts_of(config);
  return "dit-sample --checkpoint " + checkpoint.string() + " " + facts.draw_again +
         (config.sample.ema ? "" : " --raw") + " --out " +
         (facts.draws_folder ? out.parent_path() : out).string();
}

}  // namespace dtk
