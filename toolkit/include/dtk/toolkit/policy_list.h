// From the [policies] tables to the policies of a run. The only place of the toolkit that knows which
// policies there are.
#pragma once
#include <dtk/models/dit.h>
#include <dtk/policies/policy.h>
#include <dtk/toolkit/config.h>

#include <memory>
#include <vector>

namespace dtk {

/// Applies every configured policy to `model`, in the order in which they act. Throws policies::PolicyError
/// for one that was asked for and can have no effect.
std::vector<std::unique_ptr<policies::Policy>> make_policies(const PolicyOptions& options,
                                                             models::Dit& model);

/// One report per known policy, also for those that are off.
std::vector<policies::PolicyReport> policy_reports(
    const PolicyOptions& options, const std::vector<std::unique_ptr<policies::Policy>>& active);

}  // namespace dtk
