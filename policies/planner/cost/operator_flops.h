// FLOPs of one operator's call, from the shapes of its arguments.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

namespace dtk::planner {

struct OperatorFlops {
  int64_t asked = 0;       // of the operator's result
  int64_t recomputed = 0;  // of what its kernel recomputes because forward did not keep it
};

using FlopRule = OperatorFlops (*)(c10::ArrayRef<c10::IValue> arguments);

/// Null for an operator that is not counted.
FlopRule flop_rule(const c10::OperatorHandle& op);

}  // namespace dtk::planner
