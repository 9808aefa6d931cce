// Trained weights, wherever they are kept: a checkpoint of ours, a safetensors file, a file of torch.save.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/stored_tensor.h"

namespace dtk {

/// The file of a checkpoint that holds the model's own weights.
inline constexpr char kModelFile[] = "model.safetensors";

/// One set of weights, read one tensor at a time: a model and its file are never both in memory.
struct Weights {
  std::string name;  // for messages: "the EMA weights of runs/a/checkpoints/step-00001000"
  std::vector<StoredTensor> tensors;
  std::string place = {};  // a message about the choice of these weights begins with it: "--weights a.pt"
  // Of the model that was trained, where that is known, as of a checkpoint: no shape tells it.
  std::optional<int64_t> heads = {};
  // As asked for, and every file that they are read from.
  std::string path = {}, key = {};
  std::vector<std::filesystem::path> files = {};
  // Of a checkpoint that has no frozen weights: where these are. What both have is in `tensors`.
  std::shared_ptr<const Weights> base = nullptr;
  std::string adapter_config = {};  // of adapters: how they are described, as JSON
};

/// Which weights are wanted, and what messages call the options that say so.
struct WeightsRequest {
  std::string path;        // a file, a folder of adapters, of a checkpoint, or of a run for its latest
  std::string key;         // of the set in it; "": "ema" where there is one
  std::string path_place;  // a message about the path begins with it: "--weights a.pt"
  std::string key_place;   // likewise: "--key ema"
  std::string key_option;  // "--key"
  int within = 0;          // how many folders of adapters lie on these weights
};

/// A checkpoint has the keys "ema" (where the run had an EMA) and "model", its raw weights; a file of
/// torch.save those of the dicts in it; a safetensors file has none. Without a key, "ema", "model" and
/// "state_dict" are looked for, in this order, then the file itself as a set, then the only set there is.
/// Data are not read yet; `files` must outlive the result. Throws ConfigError for a path or a key that is not
/// there, DataError, from the path's place on, for a file that is none of weights, damaged or of a kind that
/// is not read (so do its tensors' read()), FileError for a checkpoint that is damaged.
Weights open_weights(FileSystem& files, const WeightsRequest& request);

/// "292 tensors converted from float16 to float32", or "" if all are float32.
std::string conversion_note(const Weights& weights);

}  // namespace dtk
