#include "toolkit/train/trainable_model.h"

#include <utility>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/families/diffusion_planner/trainable.h"
#include "toolkit/families/dit/trainable.h"

namespace dtk {

std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                           std::optional<at::Generator> generator) {
  if (config.drives())
    return std::make_unique<diffusion_planner::TrainableDiffusionPlanner>(config, device, std::move(generator));
  return std::make_unique<TrainableDit>(config, device, std::move(generator));
}

void load_weights(const Weights& weights, const TrainableModel& model) {
  model.check_fit(weights);
  copy_weights(weights, model.parameters());
}

}  // namespace dtk
