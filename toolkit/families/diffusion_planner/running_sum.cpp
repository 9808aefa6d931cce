#include "toolkit/families/diffusion_planner/running_sum.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace dtk::diffusion_planner {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RunningSum : torch::autograd::Function<RunningSum> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& values) { return values.cumsum(-2); }
  // A value is in every sum from its own on.
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    const at::Tensor& gradient = gradients.front();
    const at::Tensor before = gradient.cumsum(-2) - gradient;
    return {gradient.sum(-2, /*keepdim=*/true) - before};
  }
};

}  // namespace

at::Tensor running_sum(const at::Tensor& values) {
  return RunningSum::apply(values);
}

}  // namespace dtk::diffusion_planner
