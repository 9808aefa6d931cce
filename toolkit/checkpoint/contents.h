// The weights in a checkpoint of a training run.
#pragma once
#include <vector>

#include "toolkit/checkpoint/store.h"

namespace dtk {

inline constexpr char kModelFile[] = "model.safetensors";

/// Whether the run that wrote the checkpoint kept an EMA.
bool has_averages(const Checkpoint& checkpoint);

/// Weights of a checkpoint to sample with, read one tensor at a time: the EMA's if `ema` and there are any,
/// else the model's own.
std::vector<StoredTensor> sampling_weights(const Checkpoint& checkpoint, bool ema);

}  // namespace dtk
