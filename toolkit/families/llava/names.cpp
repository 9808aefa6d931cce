#include "toolkit/families/llava/names.h"

#include <array>
#include <optional>
#include <string_view>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/json.h"

namespace dtk::llava {
namespace {

struct Prefix {
  std::string_view theirs, own;
};

struct Kind {
  const char* name;
  std::vector<Prefix> prefixes;  // the first that fits
};

constexpr std::string_view kTower = "model.vision_tower.vision_tower.vision_model.";
constexpr std::string_view kHeadWeight = "lm_head.weight", kPeftHead = "base_model.model.lm_head.weight";

const std::array<Kind, 6>& kinds() {
  static const std::array<Kind, 6> all{
      {{"LLaVA",
        {{kTower, kTower},
         {"model.mm_projector.", "model.mm_projector."},
         {"model.embed_tokens.", "model.embed_tokens."},
         {"model.layers.", "model.layers."},
         {"model.norm.", "model.norm."},
         {kHeadWeight, kHeadWeight}}},
       {"transformers",
        {{"model.vision_tower.vision_model.", kTower},
         {"model.multi_modal_projector.linear_1.", "model.mm_projector.0."},
         {"model.multi_modal_projector.linear_2.", "model.mm_projector.2."},
         {"model.language_model.", "model."},
         {kHeadWeight, kHeadWeight}}},
       {"transformers before 4.52",
        {{"vision_tower.vision_model.", kTower},
         {"multi_modal_projector.linear_1.", "model.mm_projector.0."},
         {"multi_modal_projector.linear_2.", "model.mm_projector.2."},
         {"language_model.model.", "model."},
         {"language_model.lm_head.weight", kHeadWeight}}},
       {"peft around transformers' model",
        {{"base_model.model.model.multi_modal_projector.linear_1.", "model.mm_projector.0."},
         {"base_model.model.model.multi_modal_projector.linear_2.", "model.mm_projector.2."},
         {"base_model.model.model.language_model.", "model."},
         {kPeftHead, kHeadWeight}}},
       {"peft around transformers' model before 4.52",
        {{"base_model.model.multi_modal_projector.linear_1.", "model.mm_projector.0."},
         {"base_model.model.multi_modal_projector.linear_2.", "model.mm_projector.2."},
         {"base_model.model.language_model.model.", "model."},
         {"base_model.model.language_model.lm_head.weight", kHeadWeight}}},
       {"peft around LLaVA's own model",
        {{"base_model.model.model.mm_projector.", "model.mm_projector."},
         {"base_model.model.model.layers.", "model.layers."},
         {"base_model.model.model.norm.", "model.norm."},
         {kPeftHead, kHeadWeight}}}}};
  return all;
}

std::optional<std::string> own_name(const Kind& kind, const std::string& name) {
  for (const Prefix& prefix : kind.prefixes) {
    if (name.starts_with(prefix.theirs)) return std::string(prefix.own) + name.substr(prefix.theirs.size());
  }
  return std::nullopt;
}

// They follow from the sizes.
bool is_buffer(const std::string& name) {
  return name.ends_with(".embeddings.position_ids") || name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

Weights with_own_names(Weights weights) {
  std::erase_if(weights.tensors, [](const StoredTensor& one) { return is_buffer(one.name); });
  const Kind* kind = nullptr;  // that a name was the first to tell
  std::string told_by;
  for (const StoredTensor& tensor : weights.tensors) {
    std::vector<const Kind*> fitting;
    for (const Kind& one : kinds()) {
      if (own_name(one, tensor.name)) fitting.push_back(&one);
    }
    if (fitting.size() == 1 && kind == nullptr) {
      kind = fitting.front();
      told_by = tensor.name;
    }
    const std::string begin = (weights.place.empty() ? "" : weights.place + ": ") + weights.name;
    if (fitting.empty() && !tensor.name.empty()) {
      throw ConfigError(fmt::format(
          "{} hold {}, which no LLaVA has; allowed: the names of LLaVA's own files ({}...) or of transformers "
          "(model.language_model..., or language_model.model...)",
          begin, in_quotes(tensor.name), kinds()[0].prefixes[1].theirs));
    }
    if (fitting.size() == 1 && fitting.front() != kind) {
      throw ConfigError(
          fmt::format("{} mix names of two kinds: {} is of {}, {} of {}; name weights of one kind", begin,
                      in_quotes(told_by), kind->name, in_quotes(tensor.name), fitting.front()->name));
    }
  }
  if (kind == nullptr) kind = &kinds()[0];
  for (StoredTensor& tensor : weights.tensors) {
    if (auto own = own_name(*kind, tensor.name)) tensor.name = std::move(*own);
  }
  return weights;
}

}  // namespace dtk::llava
