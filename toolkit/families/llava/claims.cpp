#include "toolkit/families/llava/claims.h"

#include "toolkit/families/llava/options.h"

namespace dtk::llava {
namespace {

constexpr int64_t kGB = 1'000'000'000;
const char* const kWiki =
    "a wiki page on gradient checkpointing in LLaVA, 2026-02-13, without model, batch or measurement";
const char* const kReadme =
    "LLaVA's README as its issue 528 quotes it: 8 cards, weights and optimizer shared among them, 16 samples "
    "each";

Claim fits(const char* words, const char* source, int64_t gigabytes, int64_t samples) {
  return {.policy = "checkpoint",
          .words = words,
          .source = source,
          .device_bytes = gigabytes * kGB,
          .samples = samples};
}

}  // namespace

std::vector<Claim> claims(const RunConfig& config) {
  const models::LlavaOptions& model = options_of(config).model;
  std::vector<Claim> claims{
      {.policy = "checkpoint",
       .words = "~50 % lower peak VRAM, ~20 % slower",
       .source = std::string(kWiki) + "; one on transformers, 2025-12-18, has the same figures",
       .lowers_peak_by = 0.5,
       .slower_by = 0.2},
      fits("without it a batch of 16 a device is impossible", kWiki, 80, 16),
      fits("without it a batch of 32 a device is impossible", kWiki, 80, 32),
  };
  if (model.lora.r == 0) return claims;
  if (model.preset == models::LlavaPreset::of_13b)
    claims.push_back(fits("LoRA of the 13B fits 40 GB", kReadme, 40, 16));
  if (model.preset == models::LlavaPreset::of_7b)
    claims.push_back(fits("LoRA of the 7B fits a 3090, 24 GB", kReadme, 24, 16));
  return claims;
}

}  // namespace dtk::llava
