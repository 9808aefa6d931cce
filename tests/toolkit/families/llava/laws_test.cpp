// What dit-plan --explain says of a LLaVA a token: what is planned is what the law says.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/llava/dialogues.h"
#include "support/one_line.h"
#include "toolkit/plan/per_token.h"

using namespace dtk;
using dtk::test::kCpu;
using dtk::test::kCuda;

namespace {

// As it is planned before there are data.
LoadedConfig tiny(const std::vector<std::string>& overrides, bool autocasts = true) {
  std::vector<std::string> all{"llava.data.conversations=\"\"", "llava.data.tokenizer=\"\"",
                               "llava.data.max_length=128", "llava.base=\"bf16\""};
  if (autocasts) {
    all.insert(all.end(), {"policies.precision.enabled=\"default\"", "policies.precision.cpu=\"bf16\""});
  }
  all.insert(all.end(), overrides.begin(), overrides.end());
  return test::DialogueFolder().config(all);
}

const TokenCost& layers_of(const PerToken& costs) {
  const auto found = std::find_if(costs.modules.begin(), costs.modules.end(), [](const TokenCost& one) {
    return one.first.starts_with("model.layers.");
  });
  REQUIRE(found != costs.modules.end());
  return *found;
}

const TokenNote& law_of(const PerToken& costs) {
  REQUIRE(costs.notes.front().modules == "model.layers.");
  REQUIRE(costs.notes.front().bytes);
  return costs.notes.front();
}

}  // namespace

TEST_CASE("a token's bytes in a decoder layer are planned as the law says, in each regime that has one") {
  struct Regime {
    bool autocasts;
    std::vector<std::string> overrides;
    std::string composed, fused, of;
  };
  const Regime regime = GENERATE(values<Regime>({
      {true, {"train.parts=[\"projector\",\"text\"]"}, "34h + 8f", "20h + 6f", "trained"},
      {false, {"train.parts=[\"projector\",\"text\"]"}, "40h + 16f", "32h + 12f", "trained"},
      {true, {"train.parts=[\"projector\"]"}, "16h + 6f", "12h + 4f", "frozen bf16"},
      {false, {"train.parts=[\"projector\"]", "llava.base=\"fp32\""}, "24h + 12f", "24h + 8f", "frozen fp32"},
      {true, {"train.parts=[\"projector\"]", "llava.base=\"fp32\""}, "16h + 6f", "16h + 4f", "frozen fp32"},
      {true, {"train.parts=[\"projector\"]", "llava.base=\"nf4\""}, "16h + 6f", "12h + 4f", "frozen nf4"},
      {true,
       {"train.parts=[\"projector\",\"lora\"]", "llava.base=\"int8\"", "llava.lora.r=4"},
       "20h + 8f + 14r",
       "16h + 6f + 14r",
       "frozen int8, adapters of r = 4"},
      {true,
       {"train.parts=[\"projector\",\"lora\"]", "llava.base=\"nf4\"", "llava.lora.r=4",
        "llava.lora.dropout=0.1"},
       "20h + 8f + 14r",
       "16h + 6f + 14r",
       "frozen nf4, adapters of r = 4"},
      {false,
       {"train.parts=[\"projector\"]", "policies.precision.enabled=true"},
       "16h + 6f",
       "12h + 4f",
       "frozen bf16"},
      {false,
       {"train.parts=[\"projector\",\"text\"]", "policies.precision.enabled=true"},
       "34h + 8f",
       "20h + 6f",
       "trained"},
      {true, {"train.parts=[\"projector\"]", "memory.split=4"}, "16h + 6f", "12h + 4f", "frozen bf16"},
      {true,
       {"train.parts=[\"projector\"]", "policies.checkpoint.keep=\"offload\""},
       "16h + 6f",
       "12h + 4f",
       "frozen bf16"},
  }));
  const bool fuses = GENERATE(false, true);
  const c10::Device device = GENERATE(kCpu, kCuda);
  const std::string stated = (fuses ? regime.fused : regime.composed) + " + 4·heads + 8 (" + regime.of + ")";
  CAPTURE(stated, device);
  std::vector<std::string> overrides = regime.overrides;
  overrides.emplace_back(fuses ? "policies.fusion.cuda=true" : "policies.fusion.enabled=false");
  const LoadedConfig loaded = tiny(overrides, regime.autocasts);
  const PerToken costs = per_token(make_plan(loaded, device), device);
  const TokenNote& law = law_of(costs);
  CHECK_THAT(law.text, Catch::StartsWith("law " + stated + ": "));
  const TokenCost& layers = layers_of(costs);
  const policies::SegmentKeeps& keep = loaded.config.policies.checkpoint.keep;
  CHECK(layers.count == (keep.offloads_all() ? 1 : 2));  // the last layer waits nowhere
  CHECK(layers.kept == static_cast<double>(*law.bytes));
  CHECK_THAT(per_token_text(costs), !Catch::Contains("the plan differs from it"));
  // A checkpointed layer keeps its input alone, which has the type of the words' embeddings; one whose
  // tensors wait in host memory the small ones of attention.
  const bool is_fp32 = regime.of == "trained" || regime.of == "frozen fp32";
  const models::LlavaText& sizes = llava::options_of(loaded.config).model.text;
  const int64_t input = (is_fp32 ? 4 : 2) * *sizes.hidden, small = 4 * *sizes.heads + 8;
  CHECK(layers.checkpointed == static_cast<double>(keep.offloads_all() ? small : input));
  if (!keep.offloads_all()) CHECK(layers.recomputed_flops > 0);
}

TEST_CASE("no law is told where attention stores its weights") {
  const LoadedConfig loaded = tiny({"train.parts=[\"projector\"]", "policies.attention.enabled=false"});
  const PerToken costs = per_token(make_plan(loaded, kCpu), kCpu);
  CHECK(costs.notes.front().modules == "lm_head");
}

TEST_CASE("what a table a token says of a frozen tower, of the logits, and as JSON") {
  const LoadedConfig loaded = tiny({"train.parts=[\"projector\",\"lora\"]", "llava.lora.r=4"});
  const PerToken costs = per_token(make_plan(loaded, kCuda), kCuda);
  const std::string text = test::one_line(per_token_text(costs));
  CHECK_THAT(text, Catch::StartsWith("per token, planned at 256 and 512 tokens, in bytes "));
  CHECK_THAT(text, Catch::Contains(".vision_model.encoder.layers.0 ... 1, each 0 - - no graph"));
  CHECK_THAT(text, Catch::Contains("no graph: it keeps nothing, and is never a checkpoint"));
  CHECK_THAT(text, Catch::Contains("rows of the longest sample carry a label"));
  const auto json = per_token_json(costs);
  CHECK(json.at("modules").size() == costs.modules.size());
  CHECK(json.at("notes").at(0).at("bytes") == *law_of(costs).bytes);
  CHECK(json.at("others").at("kept") == costs.others.kept);
}
