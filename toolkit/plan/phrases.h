// Sentences of dit-plan: what a policy's switch changes and why.
#pragma once
#include <cstdint>
#include <string>

#include "toolkit/plan/plan.h"

namespace dtk {

/// "96 %", "<1 %"
std::string percent_text(int64_t part, int64_t whole);

/// "12.3 GFLOP", "1.23 TFLOP"
std::string flops_text(int64_t count);

/// What forward operators that run again in a steady step's backward cost; "-" for none.
std::string recomputed_text(const Plan& plan);

std::string effect_words(const Plan& plan, const PolicyEffect& effect);

}  // namespace dtk
