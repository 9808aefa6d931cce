// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace dtk {

/// "96 %", "<1 %"
std::string percent_text(int64_t part, int64_t whole);

/// "12.3 GFLOP", "1.23 TFLOP"
std::string flops_text(int64_t count);

}  // namespace dtk
