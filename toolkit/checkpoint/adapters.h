// Adapters as peft keeps them: a folder with their tensors, a description, and the name of what they lie
// beside.
#pragma once
#include <filesystem>

#include "toolkit/checkpoint/weights.h"

namespace dtk {

inline constexpr char kAdapterTensors[] = "adapter_model.safetensors",
                      kAdapterConfig[] = "adapter_config.json";

bool is_adapter_folder(FileSystem& files, const std::filesystem::path& path);

/// The adapters, on the weights that the folder's base.json (base.h) names with their SHA-256, as dit-export
/// writes it; where there is none, on those that "base_model_name_or_path" names: a file of weights, or a
/// folder with one under a name of transformers. Throws as open_weights() and open_base().
Weights open_adapters(FileSystem& files, const WeightsRequest& request);

}  // namespace dtk
