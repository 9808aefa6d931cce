#include "toolkit/checkpoint/contents.h"

#include <map>
#include <string>
#include <utility>

namespace dtk {

namespace {

constexpr char kAveragesFile[] = "ema.safetensors";

}  // namespace

bool has_averages(const Checkpoint& checkpoint) {
  return checkpoint.has(kAveragesFile);
}

std::vector<StoredTensor> sampling_weights(const Checkpoint& checkpoint, bool ema) {
  std::vector<StoredTensor> weights = checkpoint.stored_tensors(kModelFile);
  if (!ema || !has_averages(checkpoint)) return weights;
  // The averages cover the trainable parameters; fixed ones come from the model.
  std::map<std::string, StoredTensor> averages;
  for (StoredTensor& entry : checkpoint.stored_tensors(kAveragesFile))
    averages[entry.name] = std::move(entry);
  for (StoredTensor& entry : weights) {
    const auto average = averages.find(entry.name);
    if (average != averages.end()) entry = average->second;
  }
  return weights;
}

}  // namespace dtk
