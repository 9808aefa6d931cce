// What a planned job meets that cannot be planned.
#pragma once
#include <stdexcept>
#include <string>

namespace dtk::planner {

/// The message names the operator, the module path it was called in, and what to change or register.
struct PlanError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// "aten::nonzero in blocks.3.attn" for messages; "" of the path is the job itself.
std::string operator_here(const std::string& operator_name);

}  // namespace dtk::planner
