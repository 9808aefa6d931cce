// Adapters as peft keeps them, and joined with what they lie beside.
#pragma once
#include <string>
#include <vector>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/train/model_family.h"

namespace dtk::llava {

/// What peft's PeftModel.from_pretrained() loads beside a LlavaForConditionalGeneration of transformers: the
/// adapters of `weights` and, where it was trained, the projector. Throws ConfigError for weights without
/// adapters.
AdapterFiles adapter_files(const Weights& weights, const RunConfig& config);

/// W + alpha/r · B A in the place of each W with an adapter, in fp32.
std::vector<NamedTensor> merged_weights(std::vector<NamedTensor> tensors, const RunConfig& config);

/// Throws ConfigError for adapters of a file (Weights::adapter_config) that compute otherwise than
/// [llava.lora] says, which no shape tells.
void check_adapter(const Weights& weights, const RunConfig& config);

}  // namespace dtk::llava
