#include "toolkit/train/model_family.h"

namespace dtk {

const ModelFamily& family_of(const RunConfig& config) {
  return dynamic_cast<const ModelFamily&>(family_named(config.train.model));
}

}  // namespace dtk
