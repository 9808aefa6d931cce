// What a planned job meets that cannot be planned.
#pragma once
#include <stdexcept>
#include <string>

namespace dtk::planner {

/// The message names the operator, the module path it was called in, and what to change or register.
struct PlanError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The operator and where this thread is, for messages: "aten::nonzero in blocks.3",
/// "aten::nonzero in blocks.3, recomputed in backward", "aten::nonzero in the backward of blocks.3",
/// "aten::nonzero outside of all modules, in phase sample".
std::string operator_here(const std::string& operator_name);

/// For an operator that gives a value of a tensor to the host.
[[noreturn]] void refuse_reading(const std::string& operator_name);

}  // namespace dtk::planner
