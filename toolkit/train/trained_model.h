// A trained model to draw from.
#pragma once
#include "toolkit/config/locations.h"
#include "toolkit/train/apply_policies.h"
#include "toolkit/train/drawing.h"

namespace dtk {

/// Calls act(model) with the `Model` of `config`, which holds the weights of `source`, while those of its
/// policies act that have a use without a gradient. Throws ConfigError for weights of another model, and for
/// a policy that is asked for and cannot act.
template <class Model, class Act>
auto with_trained(const SampleSource& source, const RunConfig& config, c10::Device device,
                  const Act& act) try {
  Model model(config, device);
  load_weights(source.weights, model);
  policies::PolicySet policies = put_policies_in(config.policies, model, /*training=*/false);
  const auto scope = policies.forward_scope();
  return act(model);
} catch (const policies::PolicyError& error) {
  throw located(error, source.locations);
}

}  // namespace dtk
