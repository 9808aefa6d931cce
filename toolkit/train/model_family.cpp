#include "toolkit/train/model_family.h"

#include <stdexcept>

#include "toolkit/core/format.h"

namespace dtk {

const ModelFamily& family_of(const RunConfig& config) {
  return dynamic_cast<const ModelFamily&>(family_named(config.train.model));
}

ModelFacts facts_of(const RunConfig& config) {
  return family_of(config).facts(config);
}

double ModelFamily::training_flops_per_sample(const RunConfig& config, int64_t planned_forward) const {
  constexpr double kPasses = 3;  // forward, and backward as two
  return kPasses * static_cast<double>(planned_forward) / static_cast<double>(config.data.batch);
}

UnpaintedImage ModelFamily::picture_of(const RunConfig&, const std::vector<NamedTensor>&) const {
  throw std::logic_error("samples of the model family " + name() + " are no pictures");
}

std::string model_text(const ModelFacts& facts, int64_t parameters) {
  return fmt::format("{}, {:.4g} M parameters: {}", facts.model, static_cast<double>(parameters) / 1e6,
                     facts.sizes);
}

}  // namespace dtk
