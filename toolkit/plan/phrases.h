// Sentences of dit-plan: what a policy's switch changes and why.
#pragma once
#include <cstdint>
#include <string>

#include "toolkit/plan/plan.h"

namespace dtk {

/// What forward operators that run again in a steady step's backward cost; "-" for none.
std::string recomputed_text(const Plan& plan);

/// What was measured of it, or "never".
std::string measured_text(const planner::DeviceTerm& term);

std::string seconds_text(double seconds);  ///< "1.25 s"

std::string effect_words(const Plan& plan, const PolicyEffect& effect);

}  // namespace dtk
