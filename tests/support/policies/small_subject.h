// Policies in every state, and the smallest thing to put them into.
#pragma once
#include <ATen/ops/ones.h>
#include <dtk/policies/policy_set.h>

#include <string>
#include <vector>

namespace dtk::test {

/// Each asked for; the EMA beside its parameters, so that it has an effect on the CPU.
inline policies::PolicyOptions all_on() {
  policies::PolicyOptions options;
  options.checkpoint.targets = {"blocks.*"};
  options.precision.fp32 = {"final_layer"};
  options.precision.enabled = options.attention.enabled = options.checkpoint.enabled = policies::Enabled::on;
  options.ema.enabled = policies::Enabled::on;
  options.ema.device = policies::EmaDevice::same;
  return options;
}

inline const std::vector<std::string> kPaths = {"blocks.0", "blocks.1", "final_layer"};

/// One parameter on the CPU.
inline policies::Subject small_subject() {
  return {at::kCPU, {{"w", at::ones({2}).requires_grad_(true)}}, kPaths};
}

}  // namespace dtk::test
