// By how much a peak can be lowered, and by leaving what out.
#pragma once
#include <dtk/policies/memory_accounts.h>
#include <dtk/policies/phase_meter.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace dtk::planner {

/// Whether what is booked so lives from step to step.
bool is_state(policies::Category category);

/// Bytes by which the highest peak falls at the most where each phase's has less(phase) bytes less: another
/// phase's remains. Not below 0.
int64_t lowered(const std::vector<policies::PhasePeak>& phases,
                const std::function<int64_t(const policies::PhasePeak&)>& less);

}  // namespace dtk::planner
