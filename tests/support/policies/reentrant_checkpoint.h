// The other form of checkpointing, for comparison only: an autograd Function that runs the segment without
// graph in forward and differentiates it anew in backward. Every parameter must be listed.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/seam.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <string>

namespace dtk::test {

struct ReentrantSegment final : torch::CustomClassHolder {
  policies::ModuleFn fn;
  size_t inputs = 0;
  std::string random;
};

struct ReentrantFunction final : torch::autograd::Function<ReentrantFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                c10::intrusive_ptr<ReentrantSegment> segment,
                                                at::TensorList all) {
    context->saved_data["segment"] = c10::IValue::make_capsule(segment);
    context->save_for_backward(all.vec());
    policies::Tensors inputs(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(segment->inputs));
    return segment->fn(std::move(inputs));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto segment =
        c10::static_intrusive_pointer_cast<ReentrantSegment>(context->saved_data["segment"].toCapsule());
    torch::autograd::variable_list all = context->get_saved_variables(), wanted;
    policies::Tensors inputs;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i < segment->inputs) {
        inputs.push_back(all[i].detach().requires_grad_(all[i].requires_grad()));
        all[i] = inputs.back();
      }
      if (all[i].requires_grad()) wanted.push_back(all[i]);
    }
    policies::DefaultGeneratorScope random(at::kCPU, segment->random);
    at::AutoGradMode grad(true);
    const auto outputs = segment->fn(std::move(inputs));
    const auto found = torch::autograd::grad(outputs, wanted, gradients, std::nullopt, false, true);
    torch::autograd::variable_list result(1 + all.size());
    for (size_t i = 0, next = 0; i < all.size(); ++i) {
      if (all[i].requires_grad()) result[1 + i] = found[next++];
    }
    return result;
  }
};

inline policies::Tensors reentrant_checkpoint(const policies::ModuleFn& fn, const policies::Tensors& inputs,
                                              const policies::Tensors& parameters) {
  auto segment = c10::make_intrusive<ReentrantSegment>();
  segment->fn = fn;
  segment->inputs = inputs.size();
  segment->random = policies::generator_state(at::globalContext().defaultGenerator(at::kCPU));
  policies::Tensors all = inputs;
  all.insert(all.end(), parameters.begin(), parameters.end());
  return ReentrantFunction::apply(segment, at::TensorList(all));
}

}  // namespace dtk::test
