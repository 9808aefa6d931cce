#include "toolkit/families/dit/trainable.h"
#include "toolkit/train/model_family.h"

namespace dtk::dit {
namespace {

class Family final : public ModelFamily {
 public:
  std::string name() const override { return "dit"; }

  std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                             std::optional<at::Generator> generator) const override {
    return std::make_unique<TrainableDit>(config, device, std::move(generator));
  }
};

}  // namespace

const ModelFamily& family() {
  static const Family one;
  return one;
}

}  // namespace dtk::dit
