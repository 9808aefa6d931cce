#include "toolkit/families/llava/trainable.h"

#include <ATen/ops/empty.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>
#include <map>
#include <utility>

#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/llava/adapter_files.h"
#include "toolkit/families/llava/batch.h"
#include "toolkit/families/llava/names.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/families/llava/packed_files.h"
#include "toolkit/families/llava/parts.h"
#include "toolkit/families/llava/planned.h"

namespace dtk::llava {

models::LlavaOptions model_options(const RunConfig& config) {
  models::LlavaOptions options = options_of(config).model;
  options.trained = {.vision = trains(config, Part::vision),
                     .projector = trains(config, Part::projector),
                     .text = trains(config, Part::text),
                     .lora = trains(config, Part::lora),
                     .norm = trains(config, Part::norm),
                     .head = trains(config, Part::head)};
  return options;
}

TrainableLlava::TrainableLlava(const RunConfig& config, c10::Device device,
                               std::optional<at::Generator> generator, const models::ParameterMade& made)
    : TrainableLlava(config, models::Llava(model_options(config), device, std::move(generator), made)) {}

TrainableLlava::TrainableLlava(const RunConfig& config, models::Llava model)
    : config_(config), model_(std::move(model)) {
  for (const auto& [name, tensor] : packed()) policies::mark_frozen(tensor);
}

std::unique_ptr<TrainableModel> TrainableLlava::with_own_seam() const {
  models::Llava model = model_;
  model.seam = models::Seam();
  return std::unique_ptr<TrainableModel>(new TrainableLlava(config_, std::move(model)));
}

at::Tensor TrainableLlava::loss(Batch batch, const at::Generator&, bool training) const {
  for (at::Tensor& tensor : batch.tensors) tensor = tensor.to(device(), /*non_blocking=*/true);
  return model_.loss(llava_batch(std::move(batch)), training);
}

// Each as long as one may be, with a picture.
Batch TrainableLlava::made_up_batch(int64_t samples, const at::Generator& generator) const {
  Batch batch = longest_batch(config_, samples, device());
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    at::Tensor& tensor = batch.tensors[i];
    if (tensor.is_floating_point()) {
      tensor.normal_(0, 1, generator);
    } else {
      tensor.zero_();
    }
  }
  return batch;
}

models::NamedTensors TrainableLlava::packed() const {
  models::NamedTensors tensors;
  for (const auto& [name, weight] : model_.packed()) {
    for (auto& [suffix, tensor] : weight.tensors()) tensors.emplace_back(name + suffix, tensor);
  }
  return tensors;
}

models::NamedTensors TrainableLlava::in_files() const {
  models::NamedTensors list = parameters();
  const auto meta = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  for (const auto& [name, weight] : model_.packed())
    list.emplace_back(name, at::empty({weight.out, weight.in}, meta));
  return list;
}

// One at a time: what is packed by then and one weight are in memory.
void TrainableLlava::read_packed(const Weights& weights) const {
  std::map<std::string, const StoredTensor*> stored;
  for (const StoredTensor& tensor : weights.tensors) stored[tensor.name] = &tensor;
  const policies::OwnerScope owner(policies::Category::data, "weights being read");
  for (const auto& [name, weight] : model_.packed()) {
    const auto found = stored.find(name);
    if (found == stored.end()) continue;
    const bool double_quant = model_.options().double_quant;
    auto made = packed_in_file(*found->second, weight.packing, double_quant);
    if (!made) made = models::packed(found->second->read(), weight.packing, double_quant);
    const auto from = made->tensors(), into = weight.tensors();
    for (size_t i = 0; i < into.size(); ++i) at::Tensor(into[i].second).copy_(from[i].second);
  }
}

Weights TrainableLlava::own_names(Weights weights) const {
  return with_packed_joined(with_own_names(std::move(weights)));
}

void TrainableLlava::check_fit(const Weights& weights) const {
  check_adapter(weights, config_);
  // A base knows no adapters, which begin without effect then; a file with some of them is no base.
  std::vector<std::string> may_be_missing = derived();
  const auto is_adapter = [](const std::string& name) { return name.find(".lora_") != std::string::npos; };
  const bool adapted = std::any_of(weights.tensors.begin(), weights.tensors.end(),
                                   [&](const StoredTensor& one) { return is_adapter(one.name); });
  for (const auto& [name, parameter] : parameters()) {
    if (!adapted && is_adapter(name)) may_be_missing.push_back(name);
  }
  const models::LlavaOptions& options = model_.options();
  const auto hints = [&](const Shapes& file, const Shapes& own) {
    std::string settings;
    Shape in_file, in_model;
    const auto differs = [&](const std::string& key, const std::string& name, size_t dimensions, size_t at) {
      if (in_both(file, own, name, dimensions, in_file, in_model) && in_file[at] != in_model[at])
        settings += fmt::format("{}{} = {}", settings.empty() ? "" : ", ", key, in_file[at]);
    };
    const auto counts = [&](const std::string& key, const std::string& prefix) {
      const int64_t there = count_parts(file, prefix);
      if (there > 0 && there != count_parts(own, prefix))  // none: of another model
        settings += fmt::format("{}{} = {}", settings.empty() ? "" : ", ", key, there);
    };
    differs("llava.text.vocabulary", "model.embed_tokens.weight", 2, 0);
    differs("llava.text.hidden", "model.embed_tokens.weight", 2, 1);
    differs("llava.text.mlp", "model.layers.0.mlp.gate_proj.weight", 2, 0);
    counts("llava.text.depth", "model.layers.");
    const std::string tower = "model.vision_tower.vision_tower.vision_model.";
    differs("llava.vision.hidden", tower + "embeddings.class_embedding", 1, 0);
    counts("llava.vision.depth", tower + "encoder.layers.");
    return settings.empty() ? std::string() : "\n  These weights have " + settings + "; set [llava] so";
  };
  dtk::check_fit(weights, in_files(), may_be_missing, hints, *options.text.heads, "llava.text.heads");
}

}  // namespace dtk::llava
