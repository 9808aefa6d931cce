#include "toolkit/families/llava/laws.h"

#include <dtk/policies/policy_kind.h>

#include <algorithm>
#include <optional>
#include <string>

#include "toolkit/core/format.h"
#include "toolkit/core/numbers.h"
#include "toolkit/families/llava/planned.h"
#include "toolkit/families/llava/trainable.h"

namespace dtk::llava {
namespace {

/// Bytes a token and layer, but for the row sums of attention: a·h + b·f + c·r, with h of text.hidden, f of
/// text.mlp and r of lora.r.
struct Law {
  int64_t hidden, mlp, rank = 0;

  std::string formula() const {
    return fmt::format("{}h + {}f", hidden, mlp) + (rank > 0 ? fmt::format(" + {}r", rank) : "");
  }
};

// Those that the family's tests count, to the byte. Attention whose weights are stored keeps more, by the
// square of the tokens.
std::optional<Law> law_of(const models::LlavaOptions& model, const policies::PolicyOptions& options,
                          c10::Device device) {
  const auto is_on = [&](const char* name) { return policies::policy_kind(name).is_on(options, device); };
  if (!is_on("attention")) return std::nullopt;
  const bool autocast = is_on("precision"), fused = is_on("fusion");
  const models::LlavaTrained& trained = model.trained;
  const bool is_fp32 = model.base == models::LlavaBase::fp32;
  const auto law = [&](const Law& composed, const Law& of_fused) { return fused ? of_fused : composed; };
  if (trained.text && trained.lora) return std::nullopt;
  if (trained.text) return autocast ? law({34, 8}, {20, 6}) : law({40, 16}, {32, 12});
  if (!trained.projector && !trained.vision) return std::nullopt;  // no gradient passes the first layers
  if (trained.lora) {
    const bool all = model.lora.targets.size() == models::LlavaLora{}.targets.size();
    if (!autocast || is_fp32 || !all) return std::nullopt;
    return law({20, 8, 14}, {16, 6, 14});
  }
  if (!is_fp32) return law({16, 6}, {12, 4});
  return autocast ? law({16, 6}, {16, 4}) : law({24, 12}, {24, 8});
}

std::string what_is_trained(const models::LlavaOptions& model) {
  if (model.trained.text) return "trained";
  const std::string base = "frozen " + std::string(policies::text_of(model.base));
  return model.trained.lora ? fmt::format("{}, adapters of r = {}", base, model.lora.r) : base;
}

TokenNote layers_note(const models::LlavaOptions& model, const Law& law) {
  const int64_t bytes = law.hidden * *model.text.hidden + law.mlp * *model.text.mlp +
                        law.rank * model.lora.r + 4 * *model.text.heads + 8;
  return {.modules = "model.layers.",
          .text = fmt::format("law {} + 4·heads + 8 ({}): {}", law.formula(), what_is_trained(model),
                              with_separators(bytes)),
          .bytes = bytes};
}

TokenNote logits_note(const RunConfig& config, const models::LlavaOptions& model) {
  const SampleSize sample = longest_sample(config);
  const int64_t rows = std::min(model.loss_chunk, sample.labels);
  constexpr int64_t kBytesALogit = 12;
  return {
      .modules = "lm_head",
      .text = fmt::format("logits: {} of {} rows of the longest sample carry a label, {} rows a chunk: at "
                          "most {} at once",
                          with_separators(sample.labels), with_separators(sample.tokens), rows,
                          readable_bytes(kBytesALogit * rows * *model.text.vocabulary))};
}

}  // namespace

SizedJob of_length(const RunConfig& config, int64_t tokens) {
  constexpr int64_t kMaxLength = 1 << 20;
  const int64_t samples = samples_of_micro_batch(config);
  SizedJob job{config, 0};
  Options& options = options_of(job.config);
  options.lengths = {};
  options.data.max_length = std::clamp<int64_t>(tokens / samples, 2, kMaxLength);
  job.tokens = samples * options.data.max_length;
  return job;
}

std::array<SizedJob, 2> two_lengths(const RunConfig& config) {
  const int64_t samples = samples_of_micro_batch(config), length = options_of(config).data.max_length;
  const bool has_room = length / 2 > options_of(config).model.image_tokens() + 1;
  const int64_t few = samples * (has_room ? length / 2 : length);
  return {of_length(config, few), of_length(config, 2 * few)};
}

std::vector<TokenNote> token_notes(const RunConfig& config, c10::Device device) {
  const models::LlavaOptions model = models::resolved(model_options(config));
  std::vector<TokenNote> notes;
  if (const auto law = law_of(model, config.policies, device)) notes.push_back(layers_note(model, *law));
  notes.push_back(logits_note(config, model));
  return notes;
}

}  // namespace dtk::llava
