// What a function with a backward pass of its own computes in forward.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>

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

/// The gradient of x (..., in) by that of x·weightᵀ, with the bits of at::linear's own backward: rows first.
inline at::Tensor gradient_of_input(const at::Tensor& of_product, const at::Tensor& weight) {
  auto sizes = of_product.sizes().vec();
  sizes.back() = weight.size(1);
  return at::matmul(of_product.reshape({-1, of_product.size(-1)}), weight).view(sizes);
}

}  // namespace dtk::models
