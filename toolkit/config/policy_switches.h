// The four memory policies as switches of a configuration. On and off mean what the table of
// policies/README.md means: off is fp32, stored attention weights, the average on the training device, and
// all activations kept.
#pragma once
#include <c10/core/Device.h>

#include <array>

#include "toolkit/config/config.h"

namespace dtk {

inline constexpr std::array<const char*, 4> switched_policies = {"precision", "attention", "ema",
                                                                 "checkpoint"};
/// In the order of switched_policies.
using PolicySwitches = std::array<bool, switched_policies.size()>;

/// What acts on `device`. No precision_is_open() there.
PolicySwitches switches_of(const RunConfig& config, c10::Device device);

/// `config` with the policies switched so; what is as asked for already stays as it was written. A run
/// without an average (policies.ema.enabled = false) has none in the off position either.
RunConfig with_switches(RunConfig config, c10::Device device, const PolicySwitches& on);

}  // namespace dtk
