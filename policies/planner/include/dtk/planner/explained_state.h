// What an explained job holds from step to step, whatever its segments are.
#pragma once
#include <dtk/planner/explain.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dtk::planner {

/// The label that claim_state() gives to buffers, beside the parameters.
inline constexpr char kBuffersLabel[] = "buffers";

/// The most bytes that a phase's peak has of each category of state, by its name; buffers apart from the
/// parameters. Without those of 0 bytes.
std::vector<std::pair<std::string, int64_t>> state_of(const Observed& observed);

}  // namespace dtk::planner
