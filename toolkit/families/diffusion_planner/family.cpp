#include "toolkit/families/diffusion_planner/trainable.h"
#include "toolkit/train/model_family.h"

namespace dtk::diffusion_planner {
namespace {

class Family final : public ModelFamily {
 public:
  std::string name() const override { return "diffusion_planner"; }

  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator) const override {
    return std::make_unique<TrainableDiffusionPlanner>(config, device, std::move(generator));
  }
};

}  // namespace

const ModelFamily& family() {
  static const Family one;
  return one;
}

}  // namespace dtk::diffusion_planner
