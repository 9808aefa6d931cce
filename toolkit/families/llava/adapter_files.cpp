#include "toolkit/families/llava/adapter_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/llava/names.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/families/llava/parts.h"
#include "toolkit/io/json.h"

namespace dtk::llava {
namespace {

constexpr std::string_view kDown = ".lora_A.weight", kUp = ".lora_B.weight";

constexpr std::string_view kProjector = "model.mm_projector.", kNorm = "model.norm.weight",
                           kHead = "lm_head.weight";

// As peft calls them, around transformers' model.
std::string peft_name(const std::string& name) {
  const std::string begin = "base_model.model.";
  if (name == kHead) return begin + name;
  if (!name.starts_with(kProjector))
    return begin + "model.language_model." + name.substr(std::string("model.").size());
  const std::string number = name.substr(kProjector.size(), 1) == "0" ? "1" : "2";
  return fmt::format("{}model.multi_modal_projector.linear_{}{}", begin, number,
                     name.substr(kProjector.size() + 1));
}

// What is trained beside the adapters: what its tensors' names begin with, and how peft calls it.
std::vector<std::pair<std::string_view, const char*>> trained_beside(const RunConfig& config) {
  std::vector<std::pair<std::string_view, const char*>> list;
  if (trains(config, Part::projector)) list.emplace_back(kProjector, "multi_modal_projector");
  if (trains(config, Part::norm)) list.emplace_back(kNorm, "language_model.norm");
  if (trains(config, Part::head)) list.emplace_back(kHead, "lm_head");
  return list;
}

}  // namespace

void refuse_without_adapters(const std::string& argument, const std::string& name) {
  throw ConfigError(fmt::format("{}: {} have no adapters; leave it out", argument, name));
}

std::pair<std::string, bool> adapted_module(const std::string& name) {
  const bool is_up = name.ends_with(kUp);
  if (!is_up && !name.ends_with(kDown)) return {"", false};
  return {name.substr(0, name.size() - (is_up ? kUp : kDown).size()), is_up};
}

AdapterFiles adapter_files(const Weights& weights, const RunConfig& config) {
  const models::LlavaLora& lora = options_of(config).model.lora;
  if (lora.r == 0) refuse_without_adapters("--adapter", weights.name);
  const auto beside = trained_beside(config);
  if (trains(config, Part::projector) && options_of(config).model.projector_depth() != 2) {
    throw ConfigError(
        fmt::format("--adapter: {} have a projector of kind \"{}\", and transformers knows \"mlp2x_gelu\" "
                    "alone; write the whole model with --merge --out",
                    weights.name, options_of(config).model.projector));
  }
  AdapterFiles files;
  for (const StoredTensor& tensor : with_own_names(weights).tensors) {
    const bool is_beside = std::any_of(beside.begin(), beside.end(),
                                       [&](const auto& one) { return tensor.name.starts_with(one.first); });
    if (is_beside || !adapted_module(tensor.name).first.empty())
      files.tensors.push_back({peft_name(tensor.name), tensor.read().to(at::kFloat)});
  }
  if (std::none_of(files.tensors.begin(), files.tensors.end(),
                   [](const NamedTensor& one) { return one.name.ends_with(kUp); }))
    refuse_without_adapters("--adapter", weights.name);
  // The tower has matrices of the same names.
  nlohmann::ordered_json json = {
      {"peft_type", "LORA"},
      {"task_type", nullptr},
      {"base_model_name_or_path", nullptr},
      {"inference_mode", true},
      {"r", lora.r},
      {"lora_alpha", lora.alpha},
      {"lora_dropout", lora.dropout},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"target_modules", ".*language_model\\.layers.*\\.(" + listed(lora.targets, "|", "|") + ")"}};
  for (const auto& one : beside) json["modules_to_save"].push_back(one.second);
  files.config = json.dump(2) + "\n";
  return files;
}

void check_adapter(const Weights& weights, const RunConfig& config) {
  if (weights.adapter_config.empty()) return;
  const nlohmann::json json = parse_json(weights.adapter_config);
  const models::LlavaLora& lora = options_of(config).model.lora;
  const std::string begin = (weights.place.empty() ? "" : weights.place + ": ") + weights.name;
  const auto number = [&](const char* key) {
    return json.contains(key) && json.at(key).is_number() ? json.at(key).get<double>() : 0;
  };
  if (lora.r == 0) {
    throw ConfigError(fmt::format(
        "{} are adapters, and this model has none; set llava.lora.r = {}, llava.lora.alpha = {} and let "
        "train.parts name {} in the place of {}",
        begin, number("r"), number("lora_alpha"), toml_text(Part::lora), toml_text(Part::text)));
  }
  if (number("r") != static_cast<double>(lora.r) || number("lora_alpha") != lora.alpha) {
    throw ConfigError(
        fmt::format("{} have r = {} and alpha = {}, and llava.lora.r = {}, llava.lora.alpha = {}; set "
                    "[llava.lora] so",
                    begin, number("r"), number("lora_alpha"), lora.r, lora.alpha));
  }
  if (json.value("peft_type", "LORA") != "LORA")
    throw ConfigError(
        fmt::format("{} are of kind {}; allowed: \"LORA\"", begin, in_quotes(json.value("peft_type", ""))));
  // Others change the weights that adapters lie beside.
  const auto drawn = json.find("init_lora_weights");
  const bool keeps_base =
      drawn == json.end() || drawn->is_null() || drawn->is_boolean() || *drawn == "gaussian";
  if (!keeps_base) {
    throw ConfigError(
        fmt::format("{} were drawn by {}, which changes what they lie beside; name adapters that were not, "
                    "or weights with these joined in",
                    begin, drawn->dump()));
  }
  for (const char* const key :
       {"use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "layers_to_transform"}) {
    const auto found = json.find(key);
    const bool is_off = found == json.end() || found->is_null() || *found == false || found->empty();
    if (!is_off)
      throw ConfigError(fmt::format("{} are described with {}, which no [llava.lora] computes; name others",
                                    begin, in_quotes(key)));
  }
}

}  // namespace dtk::llava
