#include "toolkit/families/llava/adapter_files.h"

#include <ATen/ops/matmul.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/llava/names.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/io/json.h"

namespace dtk::llava {
namespace {

constexpr std::string_view kDown = ".lora_A.weight", kUp = ".lora_B.weight";

[[noreturn]] void refuse_without_adapters(const std::string& name) {
  throw ConfigError(name + " have no adapters; leave --adapter and --merge out");
}

// As peft calls them, around transformers' model.
std::string peft_name(const std::string& own) {
  const std::string projector = "model.mm_projector.", layers = "model.layers.", begin = "base_model.model.";
  if (own.starts_with(projector)) {
    const std::string number = own.substr(projector.size(), 1) == "0" ? "1" : "2";
    return begin + "model.multi_modal_projector.linear_" + number + own.substr(projector.size() + 1);
  }
  return begin + "model.language_model.layers." + own.substr(layers.size());
}

}  // namespace

AdapterFiles adapter_files(const Weights& weights, const RunConfig& config) {
  const models::LlavaLora& lora = options_of(config).model.lora;
  if (lora.r == 0) refuse_without_adapters(weights.name);
  const bool projects = contains(config.train.parts, "projector");
  if (projects && options_of(config).model.projector_depth() != 2) {
    throw ConfigError(
        "--adapter: " + weights.name + " have a projector of kind \"" + options_of(config).model.projector +
        "\", and transformers knows \"mlp2x_gelu\" alone; write the whole model with --merge --out");
  }
  AdapterFiles files;
  for (const StoredTensor& tensor : with_own_names(weights).tensors) {
    const bool is_adapter = tensor.name.ends_with(kDown) || tensor.name.ends_with(kUp);
    if (is_adapter || (projects && tensor.name.starts_with("model.mm_projector.")))
      files.tensors.push_back({peft_name(tensor.name), tensor.read().to(at::kFloat)});
  }
  if (std::none_of(files.tensors.begin(), files.tensors.end(),
                   [](const NamedTensor& one) { return one.name.ends_with(kUp); }))
    refuse_without_adapters(weights.name);
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
  if (projects) json["modules_to_save"] = {"multi_modal_projector"};
  files.config = json.dump(2) + "\n";
  return files;
}

std::vector<NamedTensor> merged_weights(std::vector<NamedTensor> tensors, const RunConfig& config) {
  const models::LlavaLora& lora = options_of(config).model.lora;
  if (lora.r == 0) refuse_without_adapters("the weights");
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& tensor : tensors) by_name[tensor.name] = tensor.tensor;
  std::vector<NamedTensor> merged;
  for (NamedTensor& one : tensors) {
    if (one.name.ends_with(kDown) || one.name.ends_with(kUp)) continue;
    const std::string module = one.name.substr(0, one.name.rfind('.'));
    const auto down = by_name.find(module + std::string(kDown)), up = by_name.find(module + std::string(kUp));
    if (down != by_name.end() && up != by_name.end())
      one.tensor =
          one.tensor.add(at::matmul(up->second, down->second), lora.alpha / static_cast<double>(lora.r));
    merged.push_back(std::move(one));
  }
  return merged;
}

void check_adapter(const Weights& weights, const RunConfig& config) {
  if (weights.adapter_config.empty()) return;
  const nlohmann::json json = nlohmann::json::parse(weights.adapter_config);
  const models::LlavaLora& lora = options_of(config).model.lora;
  const std::string begin = (weights.place.empty() ? "" : weights.place + ": ") + weights.name;
  const auto number = [&](const char* key) {
    return json.contains(key) && json.at(key).is_number() ? json.at(key).get<double>() : 0;
  };
  if (number("r") != static_cast<double>(lora.r) || number("lora_alpha") != lora.alpha) {
    throw ConfigError(
        fmt::format("{} have r = {} and alpha = {}, and llava.lora.r = {}, llava.lora.alpha = {}; set "
                    "[llava.lora] so",
                    begin, number("r"), number("lora_alpha"), lora.r, lora.alpha));
  }
  if (json.value("peft_type", "LORA") != "LORA")
    throw ConfigError(begin + " are of kind " + in_quotes(json.value("peft_type", "")) +
                      "; allowed: \"LORA\"");
  // Others change the weights that adapters lie beside.
  const auto drawn = json.find("init_lora_weights");
  const bool keeps_base =
      drawn == json.end() || drawn->is_null() || drawn->is_boolean() || *drawn == "gaussian";
  if (!keeps_base) {
    throw ConfigError(begin + " were drawn by " + drawn->dump() +
                      ", which changes what they lie beside; name adapters that were not, or weights with "
                      "these joined in");
  }
  for (const char* const key :
       {"use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "layers_to_transform"}) {
    const auto found = json.find(key);
    const bool is_off = found == json.end() || found->is_null() || *found == false || found->empty();
    if (!is_off)
      throw ConfigError(begin + " are described with " + in_quotes(key) +
                        ", which no [llava.lora] computes; name others");
  }
}

}  // namespace dtk::llava
