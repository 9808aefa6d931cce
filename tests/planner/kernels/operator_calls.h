// Runs a job and does first with each of its operators' calls what the planner does with it: both must make
// the same storages and results.
//
// By a fallback of this program on kCpuShapesKey, in place of the planner's.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

namespace dtk::test {

struct Seen {
  std::set<std::string> operators;
  std::map<std::string, std::string> different;  // operator: what was planned and what was made
  std::map<std::string, int64_t> scratch;        // most bytes that a call took for itself, by operator
};

/// Looks at the operators that `job` calls. Storages are those that outlive a call, and those of other
/// operators that it keeps until it ends. Scratch must agree too, where it is not open.
Seen look_at(const std::function<void()>& job);

/// One a line; "" where all agrees.
std::string differences(const Seen& result);

}  // namespace dtk::test
