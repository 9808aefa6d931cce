// Configurations of LLaVA's runs that are refused.
#include "support/catch.h"
#include "support/error_text.h"
#include "support/llava/dialogues.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/llava/dialogue_source.h"

namespace dtk::llava {
namespace {

using Overrides = std::vector<std::string>;

std::string config_refusal(const test::DialogueFolder& folder, const Overrides& overrides) {
  std::string text = test::error_text<ConfigError>([&] { folder.config(overrides); });
  return text.substr(0, text.find('\n'));
}

}  // namespace

TEST_CASE("configurations of no run of a LLaVA are refused with the key and what to set") {
  const test::DialogueFolder folder;
  CHECK_THAT(config_refusal(folder, {"train.parts=[]"}),
             Catch::EndsWith(
                 "train.parts is empty, so that nothing is trained; name some of vision, projector, text, "
                 "lora, norm, head"));
  CHECK_THAT(
      config_refusal(folder, {R"(train.parts=["tower"])"}),
      Catch::EndsWith(R"(train.parts names "tower", which train.model = "llava" has not; allowed: vision, )"
                      "projector, text, lora, norm and head"));
  CHECK_THAT(
      config_refusal(folder, {"llava.lora.r=4"}),
      Catch::EndsWith(R"(llava.lora.r = 4 makes adapters, and train.parts = ["vision", "projector", "text"] )"
                      R"(does not train them; name "lora" there, or leave [llava.lora] out)"));
  CHECK_THAT(config_refusal(folder, {"llava.lora.r=33", R"(train.parts=["lora"])"}),
             Catch::EndsWith("llava.lora.r = 33 is more than the smallest matrix has rows; set 32 or less"));
  CHECK_THAT(config_refusal(
                 folder, {"llava.lora.r=4", R"(train.parts=["lora"])", R"(llava.lora.targets=["lm_head"])"}),
             Catch::EndsWith(
                 "llava.lora.targets names \"lm_head\", which is no matrix of a decoder's layer; allowed: "
                 "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj"));
  CHECK_THAT(config_refusal(folder, {"llava.template.end_token=false"}),
             Catch::EndsWith("llava.template.end_token = false and no llava.template.answer_end: no answer "
                             "would end; set one of them"));
  CHECK_THAT(
      config_refusal(folder, {"llava.template.question_end=\"\"", "llava.template.answer_begin=\"\""}),
      Catch::EndsWith("are both empty: question and answer would run into each other; set one of them"));
  CHECK_THAT(config_refusal(folder, {"llava.data.style=plain", "llava.template.question_begin=\"Q: \""}),
             Catch::Contains("llava.template.question_begin") && Catch::Contains("llava.data.style"));
  const auto data_refusal = [&](const Overrides& overrides) {
    const LoadedConfig loaded = folder.config(overrides);
    try {
      open_dialogues(loaded, nullptr, {});
    } catch (const Error& error) {
      return std::to_string(static_cast<int>(error.code)) + " " + error.what();
    }
    return std::string("accepted");
  };
  CHECK_THAT(data_refusal({"llava.base=nf4", R"(train.parts=["projector"])"}),
             Catch::StartsWith("2 ") &&
                 Catch::EndsWith("needs weights to begin with, as what is drawn is not worth "
                                 "keeping in few bits; set train.init_from, or choose another "
                                 "llava.base"));
  CHECK_THAT(
      data_refusal({"llava.text.vocabulary=321"}),
      Catch::StartsWith("2 ") && Catch::Contains("has 320 tokens, and llava.text.vocabulary = 321; say "
                                                 "so in [llava.text], or name the tokenizer of this model"));
  CHECK_THAT(data_refusal({"llava.data.max_length=8"}),
             Catch::StartsWith("4 ") && Catch::Contains("llava.data.max_length = 8 cuts all of its answers"));
  folder.write("gone.json", nlohmann::json::array({test::dialogue("a", {"9.png"}, {"<image>?", "a bag"})}));
  CHECK_THAT(data_refusal({"llava.data.conversations=" + folder.path("gone.json")}),
             Catch::StartsWith("4 ") &&
                 Catch::Contains("sample 0: \"9.png\": no such file; pictures are looked for in "));
}

}  // namespace dtk::llava
