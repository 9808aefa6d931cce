// What a function with a backward pass of its own computes in forward.
#pragma once
#include <ATen/core/grad_mode.h>

namespace dtk::models {

/// LibTorch runs the forward pass of a torch::autograd::Function without grad mode, by which whoever counts a
/// step's operations takes them for no part of it. While this lives the mode is that of the caller, as
/// GradMode::is_enabled() told before apply(); the function works on detached tensors, so that no graph is
/// made.
class CountedForward {
 public:
  explicit CountedForward(bool has_graph) : mode_(has_graph) {}

 private:
  const at::AutoGradMode mode_;
};

}  // namespace dtk::models
