#include "toolkit/train/trainable_model.h"

#include <utility>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/train/model_family.h"

namespace dtk {

std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                           std::optional<at::Generator> generator) {
  return family_of(config).make_model(config, device, std::move(generator));
}

void load_weights(const Weights& weights, const TrainableModel& model) {
  model.check_fit(weights);
  copy_weights(weights, model.parameters());
}

}  // namespace dtk
