#include "toolkit/checkpoint/adapters.h"

#include <optional>

#include "toolkit/checkpoint/base.h"
#include "toolkit/checkpoint/find.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
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
  if (!files.is_folder(path) || checkpoint_in(files, path)) return path;
  for (const char* const name : {"model.safetensors.index.json", "model.safetensors",
                                 "pytorch_model.bin.index.json", "pytorch_model.bin"}) {
    if (files.exists(path / name)) return path / name;
  }
  return std::nullopt;
}

Weights open_named_base(FileSystem& files, const WeightsRequest& request, const std::string& description) {
  const nlohmann::json json = parse_json(description);
  const auto found = json.find("base_model_name_or_path");
  const std::string name =
      found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  // In the adapters' folder first: it is the same wherever a run is resumed.
  for (const std::filesystem::path& path :
       {std::filesystem::path(request.path) / name, std::filesystem::path(name)}) {
    const auto file = name.empty() ? std::nullopt : weights_at(files, path);
    if (!file) continue;
    WeightsRequest base = request;
    base.path = file->string();
    ++base.within;
    return open_weights(files, base);
  }
  throw ConfigError(
      fmt::format("{}: {} calls the weights that these adapters lie beside {}, which is no file of weights "
                  "here and no folder with one; write its path there as base_model_name_or_path",
                  request.path_place, kAdapterConfig, in_quotes(name)));
}

Weights open_beside(FileSystem& files, const WeightsRequest& request, const std::string& description) {
  const std::filesystem::path base = std::filesystem::path(request.path) / kBaseFile;
  if (!files.exists(base)) return open_named_base(files, request, description);
  BaseWeights known;
  try {
    known = parse_base(files.read(base, kMaxDescription), base.string());
  } catch (const FileError& error) {
    throw DataError(fmt::format("{}: {}, or remove {}, and name the weights in {}", request.path_place,
                                first_line(error.what()), shown(base), kAdapterConfig));
  }
  return open_base(files, known, std::filesystem::absolute(request.path),
                   request.path_place + ": " + base.string(), request.within + 1);
}

}  // namespace

bool is_adapter_folder(FileSystem& files, const std::filesystem::path& path) {
  return files.is_folder(path) && files.exists(path / kAdapterConfig);
}

Weights open_adapters(FileSystem& files, const WeightsRequest& request) {
  const std::filesystem::path folder = request.path;
  if (!request.key.empty())
    throw ConfigError(
        fmt::format("{}: adapters in {} have no key; remove it", request.key_place, request.path));
  constexpr int kMaxWithin = 8;
  if (request.within >= kMaxWithin) {
    throw ConfigError(fmt::format(
        "{}: more than {} folders of adapters lie on each other, up to {}; join them with dit-export --merge",
        request.path_place, kMaxWithin, request.path));
  }
  WeightsRequest tensors = request;
  tensors.path = (folder / kAdapterTensors).string();
  Weights weights = open_weights(files, tensors);
  weights.name = "the adapters of " + request.path;
  weights.adapter_config = description_in(files, folder, request.path_place);
  weights.base = std::make_shared<Weights>(open_beside(files, request, weights.adapter_config));
  weights.files.push_back(folder / kAdapterConfig);
  weights.files.insert(weights.files.end(), weights.base->files.begin(), weights.base->files.end());
  return weights;
}

}  // namespace dtk
