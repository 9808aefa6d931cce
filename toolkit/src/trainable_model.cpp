#include <dtk/toolkit/trainable_dit.h>
#include <dtk/toolkit/trainable_model.h>
#include <dtk/toolkit/trainable_planner.h>
#include <dtk/toolkit/weights.h>

#include <utility>

#include "weights_fit.h"

namespace dtk {

std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                           std::optional<at::Generator> generator) {
  if (config.drives()) return std::make_unique<TrainablePlanner>(config, device, std::move(generator));
  return std::make_unique<TrainableDit>(config, device, std::move(generator));
}

void load_weights(const Weights& weights, const TrainableModel& model) {
  model.check_fit(weights);
  copy_weights(weights, model.parameters());
}

}  // namespace dtk
