// Adapters as peft keeps them.
#pragma once
#include <string>
#include <utility>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/train/model_family.h"

namespace dtk::llava {

/// What peft's PeftModel.from_pretrained() loads beside a LlavaForConditionalGeneration of transformers: the
/// adapters of `weights` and, where it was trained, the projector. Throws ConfigError for weights without
/// adapters.
AdapterFiles adapter_files(const Weights& weights, const RunConfig& config);

/// Of an adapter's tensor: the module that it lies beside, and whether it is the second of its two; "" of
/// any other.
std::pair<std::string, bool> adapted_module(const std::string& name);
/// Throws the ConfigError of weights without adapters, for which `argument` was given.
[[noreturn]] void refuse_without_adapters(const std::string& argument, const std::string& name);

/// Throws ConfigError for adapters of a file (Weights::adapter_config) that compute otherwise than
/// [llava.lora] says, which no shape tells.
void check_adapter(const Weights& weights, const RunConfig& config);

}  // namespace dtk::llava
