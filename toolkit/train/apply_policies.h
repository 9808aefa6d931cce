// Policies meet the model: models/ and policies/ know nothing of each other.
#pragma once
#include <dtk/models/layers.h>
#include <dtk/models/seam.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/shards.h>

#include <memory>
#include <string>
#include <vector>

#include "toolkit/config/config.h"
#include "toolkit/distributed/ranks.h"
#include "toolkit/train/trainable_model.h"

namespace dtk {

/// Puts the policies of `options` into the seam of a model with these parameters and paths: those that act in
/// training, else those that act without gradient. `shards`: of several ranks. Throws policies::PolicyError
/// as PolicySet does.
policies::PolicySet put_policies_in(const policies::PolicyOptions& options, models::Seam& seam,
                                    const models::NamedTensors& parameters,
                                    const std::vector<std::string>& paths, bool training = true,
                                    policies::Shards* shards = nullptr);

/// What of the model's trained parameters this rank updates; `ranks` null: all.
std::unique_ptr<policies::Shards> shards_of(const RunConfig& config, const TrainableModel& model,
                                            const Ranks* ranks);

inline policies::PolicySet put_policies_in(const policies::PolicyOptions& options, TrainableModel& model,
                                           bool training = true, policies::Shards* shards = nullptr) {
  return put_policies_in(options, model.seam(), reached_parameters(model), model.paths(), training, shards);
}

}  // namespace dtk
