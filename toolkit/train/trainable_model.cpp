#include "toolkit/train/trainable_model.h"

#include <set>
#include <utility>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/core/text.h"
#include "toolkit/train/model_family.h"
#include "toolkit/train/shard_files.h"

namespace dtk {

std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                           std::optional<at::Generator> generator,
                                           const models::ParameterMade& made) {
  return family_of(config).make_model(config, device, std::move(generator), made);
}

models::NamedTensors reached_parameters(const TrainableModel& model) {
  models::NamedTensors parameters = model.parameters();
  const std::vector<std::string> unused = model.unused();
  std::erase_if(parameters, [&](const auto& one) { return contains(unused, one.first); });
  return parameters;
}

Weights TrainableModel::own_names(Weights weights) const {
  return weights;
}

Weights complete_weights(const TrainableModel& model, const Weights& weights) {
  Weights own = model.own_names(weights);
  if (own.base == nullptr) return own;
  std::set<std::string> names;
  for (const StoredTensor& tensor : own.tensors) names.insert(tensor.name);
  for (StoredTensor& tensor : complete_weights(model, *own.base).tensors) {
    if (names.count(tensor.name) == 0) own.tensors.push_back(std::move(tensor));
  }
  own.base = nullptr;
  return own;
}

bool TrainableModel::is_partly_frozen() const {
  return !packed().empty() || !frozen_parameters(*this).empty();
}

models::NamedTensors frozen_parameters(const TrainableModel& model) {
  models::NamedTensors frozen;
  const std::vector<std::string> derived = model.derived();
  for (const auto& one : model.parameters()) {
    if (!one.second.requires_grad() && !contains(derived, one.first)) frozen.push_back(one);
  }
  return frozen;
}

void load_weights(const Weights& weights, const TrainableModel& model, const policies::Shards* shards) {
  Weights own = complete_weights(model, weights);
  model.check_fit(own);
  models::NamedTensors into = model.parameters();
  if (shards != nullptr) take_own_parts(*shards, own.tensors, into);
  copy_weights(own, into);
  model.read_packed(own);
}

}  // namespace dtk
