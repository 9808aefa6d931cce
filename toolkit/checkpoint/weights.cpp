#include "toolkit/checkpoint/weights.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>

#include "toolkit/checkpoint/adapters.h"
#include "toolkit/checkpoint/base.h"
#include "toolkit/checkpoint/find.h"
#include "toolkit/checkpoint/shards.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/config/rules.h"
#include "toolkit/config/toml_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/dtypes.h"
#include "toolkit/io/json.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/io/torch_file.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

const std::string allowed =
    "allowed: a safetensors file, a file of torch.save, a list of such (*.index.json), or the folder of a "
    "checkpoint, a run or adapters";

/// What is wrong with a file begins with the option or the key that named it.
template <class Read>
auto at_place(const std::string& place, const Read& read) {
  try {
    return read();
  } catch (const FileError& error) {
    throw DataError(place + ": " + error.what());
  }
}

std::vector<std::string> quoted(const std::vector<std::string>& keys) {
  std::vector<std::string> texts;
  for (const std::string& key : keys) {
    if (!key.empty()) texts.push_back(in_quotes(key));
  }
  return texts;
}

constexpr char averages_file[] = "ema.safetensors";  // where the run kept an EMA

std::vector<StoredTensor> averaged_weights(const Checkpoint& checkpoint) {
  // The averages cover the trainable parameters; fixed ones come from the model.
  std::map<std::string, StoredTensor> averages;
  for (StoredTensor& entry : checkpoint.stored_tensors(averages_file))
    averages[entry.name] = std::move(entry);
  std::vector<StoredTensor> weights = checkpoint.stored_tensors(kModelFile);
  for (StoredTensor& entry : weights) {
    const auto average = averages.find(entry.name);
    if (average != averages.end()) entry = average->second;
  }
  return weights;
}

Weights from_checkpoint(FileSystem& files, const WeightsRequest& request, const Path& folder) {
  const Checkpoint checkpoint = open_checkpoint(files, folder);
  const std::string name = checkpoint.folder().string();
  const bool has_ema = checkpoint.has_tensors(averages_file);
  if (request.key == "ema" && !has_ema) {
    throw ConfigError(
        fmt::format("{}: {} has no EMA weights, its run had no EMA; its raw weights have the key \"model\"",
                    request.key_place, name));
  }
  if (!request.key.empty() && request.key != "ema" && request.key != "model") {
    throw ConfigError(
        fmt::format("{}: no weights in {} have this key; allowed: \"ema\" and \"model\", its raw weights",
                    request.key_place, name));
  }
  const bool ema = has_ema && request.key != "model";
  Weights weights{fmt::format("the {} weights of {}", ema ? "EMA" : "raw", name),
                  ema ? averaged_weights(checkpoint) : checkpoint.stored_tensors(kModelFile)};
  weights.files = checkpoint.paths_of_tensors(kModelFile);
  if (ema) {
    const std::vector<Path> averages = checkpoint.paths_of_tensors(averages_file);
    weights.files.insert(weights.files.end(), averages.begin(), averages.end());
  }
  if (checkpoint.has(kBaseFile)) {
    const std::string place = (checkpoint.folder() / kBaseFile).string();
    BaseWeights base = parse_base(checkpoint.text(kBaseFile), place);
    weights.base =
        std::make_shared<Weights>(open_base(files, base, folder_for_base(checkpoint.folder()), place));
    weights.files.insert(weights.files.end(), weights.base->files.begin(), weights.base->files.end());
  }
  const RunConfig config = parse_config(checkpoint.text("config.toml"), name + "/config.toml", {}).config;
  weights.heads = family_named(config.train.model).heads(config);
  return weights;
}

Weights from_safetensors(FileSystem& files, const WeightsRequest& request) {
  if (!request.key.empty()) {
    throw ConfigError(
        fmt::format("{}: {} is a safetensors file, which holds one set of weights without a key; remove it",
                    request.key_place, request.path));
  }
  Weights weights{"the weights of " + request.path, open_safetensors(files, request.path)};
  strip_wrappers(weights.tensors);
  return weights;
}

std::string chosen_key(const TorchFile& file, const WeightsRequest& request) {
  const std::vector<std::string>& keys = file.keys();
  const auto has = [&](const std::string& key) { return std::count(keys.begin(), keys.end(), key) > 0; };
  if (keys.empty()) {
    throw DataError(
        fmt::format("{}: it holds no named tensors but {}; allowed: a state dict, or a dict of state dicts "
                    "such as {{\"model\": ..., \"ema\": ...}}; write it so with torch.save",
                    request.path_place, file.content()));
  }
  if (!request.key.empty()) {
    if (has(request.key)) return request.key;
    const bool only_itself = keys.size() == 1 && keys.front().empty();
    throw ConfigError(fmt::format(
        "{}: {}{}", request.key_place, request.path,
        only_itself ? " is one set of weights without a key; remove it"
                    : " has no weights under this key; allowed: " + listed(quoted(keys), " or ")));
  }
  for (const char* usual : {"ema", "model", "state_dict"}) {
    if (has(usual)) return usual;
  }
  if (keys.size() == 1 || has("")) return keys.front();  // "" is the first
  throw ConfigError(fmt::format("{}: it holds several sets of weights: {}; choose one with {}",
                                request.path_place, listed(quoted(keys), " and "), request.key_option));
}

Weights from_torch_file(FileSystem& files, const WeightsRequest& request) {
  const TorchFile file(files, request.path);
  const std::string key = chosen_key(file, request);
  return {fmt::format("the {}weights of {}", key.empty() ? "" : in_quotes(key) + " ", request.path),
          file.tensors(key)};
}

// A safetensors file begins with 8 bytes of header length and the header, a JSON object without blanks before
// it. Whether the length can be right is for its reader to say.
bool begins_as_safetensors(FileSystem& files, const Path& path) {
  constexpr uint64_t brace_at = 8;
  if (files.size(path) <= brace_at) return false;
  char byte = 0;
  files.read_into(path, brace_at, &byte, 1);
  return byte == '{';
}

/// For a file that begins as none that can be read does: its name may say that it once was one.
[[noreturn]] void refuse_other_file(const WeightsRequest& request) {
  const std::string extension = Path(request.path).extension().string();
  const bool torch = extension == ".pt" || extension == ".pth" || extension == ".ckpt" || extension == ".bin";
  if (torch || extension == ".safetensors") {
    throw DataError(fmt::format(
        "{}: it does not begin as a {} does, so it is damaged; {}; get the file again, or name another",
        request.path_place, torch ? "file of torch.save" : "safetensors file", allowed));
  }
  throw DataError(fmt::format("{}: no file of weights; {}; name one of these", request.path_place, allowed));
}

// Each shard is a file of its own kind.
Weights from_shards(FileSystem& files, const WeightsRequest& request) {
  if (!request.key.empty()) {
    throw ConfigError(fmt::format("{}: {} lists the shards of one set of weights without a key; remove it",
                                  request.key_place, request.path));
  }
  Weights weights{"the weights of " + request.path, {}};
  weights.tensors = open_shards(files, request.path, [&](const Path& shard) {
    weights.files.push_back(shard);
    WeightsRequest one = request;
    one.path = shard.string();
    return is_torch_file(files, shard) ? from_torch_file(files, one).tensors
                                       : from_safetensors(files, one).tensors;
  });
  weights.files.push_back(request.path);
  return weights;
}

Weights open_file(FileSystem& files, const WeightsRequest& request) {
  Weights weights = at_place(request.path_place, [&] {
    if (is_shard_index(request.path)) return from_shards(files, request);
    if (is_torch_file(files, request.path)) return from_torch_file(files, request);
    if (!begins_as_safetensors(files, request.path)) refuse_other_file(request);
    return from_safetensors(files, request);
  });
  for (StoredTensor& tensor : weights.tensors) {
    tensor.read = [place = request.path_place, read = std::move(tensor.read)] {
      return at_place(place, read);
    };
    if (tensor.read_into) {
      tensor.read_into = [place = request.path_place, read = std::move(tensor.read_into)](
                             const at::Tensor& into) { at_place(place, [&] { read(into); }); };
    }
    const std::string where = request.path_place + ": tensor " + in_quotes(tensor.name);
    tensor = finite_only(std::move(tensor), [where] {
      throw DataError(where +
                      " holds a value that is not finite in float32 (NaN, infinite or too large), as a run "
                      "writes that diverged; name weights of an earlier step");
    });
  }
  return weights;
}

}  // namespace

Weights open_weights(FileSystem& files, const WeightsRequest& request) {
  const Path path = request.path;
  Weights weights;
  if (const auto folder = checkpoint_in(files, path)) {
    weights = from_checkpoint(files, request, *folder);
  } else if (files.exists(path) && !files.is_folder(path)) {
    weights = open_file(files, request);
  } else if (is_adapter_folder(files, path)) {
    weights = open_adapters(files, request);
  } else if (!files.exists(path) && !step_named(without_slash(path).filename().string())) {
    throw ConfigError(request.path_place + ": no such file or folder; " + allowed);
  } else {
    throw ConfigError(fmt::format("{}: {}; name a checkpoint's folder, or a run folder to use its latest",
                                  request.path_place, why_no_checkpoint(files, path)));
  }
  if (weights.files.empty()) weights.files.push_back(path);
  // That of a run is by now the checkpoint that was its latest.
  weights.path = checkpoint_in(files, path) ? weights.files.front().parent_path().string() : request.path;
  weights.key = request.key;
  weights.place = request.path_place;
  return weights;
}

std::string conversion_note(const Weights& weights) {
  std::map<std::string, int64_t> counts;
  for (const StoredTensor& tensor : weights.tensors) {
    if (tensor.type != at::kFloat) ++counts[dtype_name(tensor.type)];
  }
  std::vector<std::string> notes;
  for (const auto& [type, count] : counts)
    notes.push_back(
        fmt::format("{} tensor{} converted from {} to float32", count, count == 1 ? "" : "s", type));
  return c10::Join("; ", notes);
}

}  // namespace dtk
