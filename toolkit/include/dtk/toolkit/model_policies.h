// Policies meet the model: models/ and policies/ know nothing of each other.
#pragma once
#include <dtk/models/dit.h>
#include <dtk/policies/policy_set.h>

namespace dtk {

/// Puts the policies of `options` into the model's seam. Throws policies::PolicyError as PolicySet does.
policies::PolicySet put_policies_in(const policies::PolicyOptions& options, models::Dit& model);

}  // namespace dtk
