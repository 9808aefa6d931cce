#include "toolkit/families/llava/exported.h"

#include <ATen/ops/matmul.h>
#include <dtk/policies/enum_text.h>

#include <map>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/families/llava/adapter_files.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/families/llava/packed_files.h"

namespace dtk::llava {
namespace {

using models::Packing;

struct AdaptersOf {
  const StoredTensor *down = nullptr, *up = nullptr;
};

std::optional<Packing> packing_of(const std::string& word) {
  if (word.empty()) return std::nullopt;
  if (const auto packing = policies::parse_enum<Packing>(word)) return packing;
  throw ConfigError(fmt::format("--pack {}: allowed: {}", word, policies::choices_of<Packing>()));
}

bool is_matrix_of_decoder(const StoredTensor& tensor) {
  return tensor.name.starts_with("model.layers.") && tensor.shape.size() == 2;
}

}  // namespace

ModelFamily::Exporting exporting(const Weights& own, const RunConfig& config, const ExportChanges& changes) {
  const std::optional<Packing> packing = packing_of(changes.pack);
  const models::LlavaOptions& model = options_of(config).model;
  if (changes.merge && model.lora.r == 0) refuse_without_adapters("--merge", own.name);
  std::map<std::string, AdaptersOf> adapters;  // by the module
  for (const StoredTensor& tensor : own.tensors) {
    if (const auto [module, is_up] = adapted_module(tensor.name); !module.empty())
      (is_up ? adapters[module].up : adapters[module].down) = &tensor;
  }
  const double scale = model.lora.alpha / static_cast<double>(std::max<int64_t>(1, model.lora.r));
  return [=](const StoredTensor& tensor) -> std::vector<NamedTensor> {
    const bool is_adapter = !adapted_module(tensor.name).first.empty();
    if (is_adapter && changes.merge) return {};
    const auto beside = adapters.find(tensor.name.substr(0, tensor.name.rfind('.')));
    const bool joins = changes.merge && beside != adapters.end();
    const bool packs = packing && !is_adapter && is_matrix_of_decoder(tensor);
    if (packs && !joins) {
      if (const auto there = packed_in_file(tensor, *packing, model.double_quant))
        return as_in_file(tensor.name, *there);
    }
    at::Tensor weight = tensor.read().to(at::kFloat);
    if (joins) {
      const AdaptersOf& both = beside->second;
      weight =
          weight.add(at::matmul(both.up->read().to(at::kFloat), both.down->read().to(at::kFloat)), scale);
    }
    if (packs) return as_in_file(tensor.name, models::packed(weight, *packing, model.double_quant));
    return {{tensor.name, std::move(weight)}};
  };
}

std::string lost_by_export(const RunConfig& config, const ExportChanges& changes) {
  const models::LlavaBase base = options_of(config).model.base;
  const bool packs_other =
      !changes.pack.empty() && (changes.merge || changes.pack != policies::text_of(base));
  if (packs_other) {
    return fmt::format(
        "the decoder's matrices are packed as {}{}, which they were not in training: answers may differ from "
        "the run's",
        changes.pack, changes.merge ? " with their adapters" : "");
  }
  if (!changes.merge || !models::is_packed(base)) return "";
  return "the adapters were trained beside a base in " + std::string(policies::text_of(base)) +
         ", and are joined with the weights that it was packed from: what the packing changed is not in "
         "them, so that answers may differ from the run's";
}

}  // namespace dtk::llava
