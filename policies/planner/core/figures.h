// Numbers of a report for a terminal.
#pragma once
#include <cstdint>
#include <string>

namespace dtk::planner {

/// "17,209,941,680"
std::string digits(int64_t number);
/// "17,209,941,680 bytes"
std::string bytes_text(int64_t number);
/// "83 %", "<1 %"
std::string percent_text(int64_t part, int64_t whole);

}  // namespace dtk::planner
