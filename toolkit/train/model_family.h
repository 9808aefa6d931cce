// A model family: all that a run has to know of the models that train.model names.
#pragma once
#include "toolkit/config/families.h"
#include "toolkit/train/trainable_model.h"

namespace dtk {

class ModelFamily : public ConfiguredFamily {
 public:
  /// As dtk::make_model().
  virtual std::unique_ptr<TrainableModel> make_model(const RunConfig& config, c10::Device device,
                                                     std::optional<at::Generator> generator) const = 0;
};

/// The one that `config` names.
const ModelFamily& family_of(const RunConfig& config);

}  // namespace dtk
