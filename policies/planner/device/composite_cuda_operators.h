// Operators that have a kernel of their own on CUDA and, where libtorch_cuda is not loaded, would silently be
// taken apart into others, whose storages are other ones.
#pragma once
#include <vector>

namespace dtk::planner {

/// Of LibTorch 2.11, "aten::silu_backward"; made by tests/planner/device/cuda_operators.py, whose test fails when it
/// is out of date.
const std::vector<const char*>& composite_cuda_operators();

}  // namespace dtk::planner
