#include "toolkit/train/trainable_model.h"

#include <utility>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/core/text.h"
#include "toolkit/train/model_family.h"

namespace dtk {

std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                           std::optional<at::Generator> generator) {
  return family_of(config).make_model(config, device, std::move(generator));
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

void load_weights(const Weights& weights, const TrainableModel& model) {
  const Weights own = model.own_names(weights);
  model.check_fit(own);
  copy_weights(own, model.parameters());
  model.read_packed(own);
}

}  // namespace dtk
