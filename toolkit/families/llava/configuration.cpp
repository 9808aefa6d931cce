#include "toolkit/families/llava/configuration.h"

#include "toolkit/config/defaults.h"
#include "toolkit/config/rule_check.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/families/llava/parts.h"
#include "toolkit/families/llava/trainable.h"

namespace dtk::llava {

std::vector<std::string> Configuration::parts() const {
  constexpr auto names = enum_texts(Part{});
  return {names.begin(), names.end()};
}

// Nothing is drawn while it trains: a run's answers are asked for afterwards.
bool Configuration::ignores(const std::string& key) const {
  return is_one_of(key,
                   {"data.on_corrupt", "data.samples", "sample.steps", "sample.ema", "train.sample_every"});
}

HeldOut Configuration::held_out(const RunConfig& config) const {
  const bool some = !options_of(config).data.held_out.empty() || config.data.validation > 0;
  return {some, "data.validation or llava.data.held_out",
          "data.validation = 0 holds none out and llava.data.held_out is not set"};
}

std::unique_ptr<OptionTables> Configuration::new_options() const {
  return std::make_unique<TablesOf<Options>>();
}

std::optional<int64_t> Configuration::heads(const RunConfig& config) const {
  return models::resolved(options_of(config).model).text.heads;
}

void Configuration::settle_defaults(LoadedConfig& loaded) const {
  RunConfig& config = loaded.config;
  settle(loaded, "data.kind", config.data.kind, std::string("conversations"), "of llava");
  const bool adapts = options_of(config).model.lora.r > 0;
  settle(loaded, "train.parts", config.train.parts,
         {policies::text_of(Part::projector), policies::text_of(adapts ? Part::lora : Part::text)},
         adapts ? "as llava.lora.r is set" : "what LLaVA's second stage trains");
  policies::PolicyOptions& policies = config.policies;
  settle(loaded, "policies.checkpoint.targets", policies.checkpoint.targets,
         {models::llava_checkpoint_target}, "the decoder's layers");
  settle(loaded, "policies.ema.enabled", policies.ema.enabled, policies::Enabled::off,
         "fine-tuning keeps no average");
}

void Configuration::check_model(const RuleCheck& rules) const {
  const models::LlavaOptions model = model_options(rules.config());
  const auto found = models::problems(model);
  if (!found.empty()) rules.fail("llava." + found.front().key, found.front().message);
  const std::string parts = setting("train.parts", rules.config().train.parts);
  if (model.lora.r > 0 && !model.trained.lora) {
    rules.fail(
        "llava.lora.r",
        fmt::format("{} makes adapters, and {} does not train them; name {} there, or leave [llava.lora] out",
                    setting("llava.lora.r", model.lora.r), parts, toml_text(Part::lora)));
  }
  if (models::is_packed(model.base) && model.trained.text) {
    rules.fail(
        "llava.base",
        fmt::format("{} packs the decoder, which {} trains; leave {} out there, or choose another llava.base",
                    setting("llava.base", policies::text_of(model.base)), parts, toml_text(Part::text)));
  }
  if (model.trained.lora && model.trained.text)
    rules.fail("train.parts", parts + ": decoder and adapters would learn the same; name one of them");
}

void Configuration::check_data(const RuleCheck& rules) const {
  const DialogueOptions& data = options_of(rules.config()).data;
  if (!data.form.end_token && data.form.answer_end.empty()) {
    rules.fail("llava.template.end_token",
               "llava.template.end_token = false and no llava.template.answer_end: no answer would end; set "
               "one of them");
  }
  if (data.form.question_end.empty() && data.form.answer_begin.empty()) {
    rules.fail(
        "llava.template.question_end",
        "llava.template.question_end and llava.template.answer_begin are both empty: question and answer "
        "would run into each other; set one of them");
  }
  if (!data.held_out.empty() && rules.config().data.validation > 0) {
    rules.fail("llava.data.held_out", "llava.data.held_out and " +
                                          setting("data.validation", rules.config().data.validation) +
                                          " both say what is held out; remove one of them");
  }
  if (data.held_out.empty() || data.held_out != data.conversations) return;
  rules.fail("llava.data.held_out", "llava.data.held_out = " + toml_text(data.held_out) +
                                        " is what is trained on; name samples of its own");
}

std::string Configuration::useless_because(const RunConfig& config, const std::string& key) const {
  const Options& options = options_of(config);
  if (key == "llava.double_quant" && options.model.base != models::LlavaBase::nf4) return "llava.base";
  if (is_one_of(key, {"llava.lora.alpha", "llava.lora.dropout", "llava.lora.targets"}) &&
      options.model.lora.r == 0)
    return "llava.lora.r";
  if (key == "llava.data.system" && options.data.style == DialogueStyle::plain) return "llava.data.style";
  if (key == "llava.data.image_first" && options.data.style == DialogueStyle::plain)
    return "llava.data.style";
  if (key.starts_with("llava.template.") && options.data.style == DialogueStyle::plain)
    return "llava.data.style";
  return "";
}

// What is read, and how much at once; neither changes what was learnt.
bool Configuration::may_change_on_resume(const std::string& key) const {
  const bool is_data =
      key.starts_with("llava.data.") && !is_one_of(key, {"llava.data.style", "llava.data.system"});
  return is_data || key == "llava.loss_chunk" || ModelFamily::may_change_on_resume(key);
}

// Of what a preset says.
std::string Configuration::derived_value(const RunConfig& config, const std::string& key) const {
  const models::LlavaOptions& model = options_of(config).model;
  if (!models::problems(model).empty()) return "";
  const models::LlavaOptions sizes = models::resolved(model);
  std::string line;
  const auto look = [&](const std::string& table, const auto& values) {
    std::decay_t<decltype(values)>::fields(
        values, [&](const std::string& name, const auto& value, const auto&...) {
          if (key == table + "." + name && is_set(value))
            line = fmt::format("{} = {} ({})", name, toml_text(value), policies::text_of(model.preset));
        });
  };
  look("llava.vision", sizes.vision);
  look("llava.text", sizes.text);
  return line;
}

}  // namespace dtk::llava
