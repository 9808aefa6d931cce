#include "toolkit/checkpoint/adapters.h"

#include <optional>

#include "toolkit/checkpoint/base.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/text.h"
#include "toolkit/io/json.h"

namespace dtk {
namespace {

constexpr uint64_t kMaxDescription = 1 << 20;
constexpr int kDescriptionDepth = 16;

std::string description_in(FileSystem& files, const std::filesystem::path& folder, const std::string& place) {
  try {
    const std::string text = files.read(folder / kAdapterConfig, kMaxDescription);
    const nlohmann::json json = parse_strict_json(text, shown(folder / kAdapterConfig), kDescriptionDepth);
    if (!json.is_object()) throw FileError(shown(folder / kAdapterConfig) + ": no object");
    return text;
  } catch (const FileError& error) {
    throw DataError(place + ": " + error.what());
  }
}

// A file of weights at that path, or in that folder.
std::optional<std::filesystem::path> weights_at(FileSystem& files, const std::filesystem::path& path) {
  if (!files.exists(path)) return std::nullopt;
  if (!files.is_folder(path)) return path;
  for (const char* const name : {"model.safetensors.index.json", "model.safetensors",
                                 "pytorch_model.bin.index.json", "pytorch_model.bin"}) {
    if (files.exists(path / name)) return path / name;
  }
  return std::nullopt;
}

Weights open_named_base(FileSystem& files, const WeightsRequest& request, const std::string& description) {
  const nlohmann::json json = nlohmann::json::parse(description);
  const auto found = json.find("base_model_name_or_path");
  const std::string name =
      found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  for (const std::filesystem::path& path :
       {std::filesystem::path(name), std::filesystem::path(request.path) / name}) {
    const auto file = name.empty() ? std::nullopt : weights_at(files, path);
    if (!file) continue;
    WeightsRequest base = request;
    base.path = file->string();
    return open_weights(files, base);
  }
  throw ConfigError(request.path_place + ": " + kAdapterConfig +
                    " calls the weights that these adapters lie "
                    "beside " +
                    in_quotes(name) +
                    ", which is no file of weights here and no folder with one; write its path there as "
                    "base_model_name_or_path");
}

}  // namespace

bool is_adapter_folder(FileSystem& files, const std::filesystem::path& path) {
  return files.is_folder(path) && files.exists(path / kAdapterConfig) && files.exists(path / kAdapterTensors);
}

Weights open_adapters(FileSystem& files, const WeightsRequest& request) {
  const std::filesystem::path folder = request.path;
  if (!request.key.empty())
    throw ConfigError(request.key_place + ": adapters in " + request.path + " have no key; remove it");
  WeightsRequest tensors = request;
  tensors.path = (folder / kAdapterTensors).string();
  Weights weights = open_weights(files, tensors);
  weights.name = "the adapters of " + request.path;
  weights.adapter_config = description_in(files, folder, request.path_place);
  const std::filesystem::path base = folder / kBaseFile;
  weights.base = std::make_shared<Weights>(
      files.exists(base)
          ? open_base(files, parse_base(files.read(base, kMaxDescription), base.string()), base.string())
          : open_named_base(files, request, weights.adapter_config));
  weights.files.push_back(folder / kAdapterConfig);
  weights.files.insert(weights.files.end(), weights.base->files.begin(), weights.base->files.end());
  return weights;
}

}  // namespace dtk
