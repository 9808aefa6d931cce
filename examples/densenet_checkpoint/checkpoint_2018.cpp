#include "densenet_checkpoint/checkpoint_2018.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

namespace examples {
namespace {

using dtk::policies::Tensors;
using torch::autograd::AutogradContext;

struct Segment final : torch::CustomClassHolder {
  dtk::policies::ModuleFn fn;
  Tensors inputs, parameters;
  std::vector<std::unique_ptr<SavedBytes::Holding>> held;
};

struct Checkpoint2018 final : torch::autograd::Function<Checkpoint2018> {
  // `all`: inputs and parameters, so that autograd expects gradients for both.
  static Tensors forward(AutogradContext* context, const c10::intrusive_ptr<Segment>& segment,
                         at::TensorList /*all*/) {
    context->saved_data["segment"] = c10::IValue::make_capsule(segment);
    return segment->fn(Tensors(segment->inputs));
  }

  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const auto segment =
        c10::static_intrusive_pointer_cast<Segment>(context->saved_data["segment"].toCapsule());
    Tensors inputs;
    for (const at::Tensor& input : segment->inputs) {
      inputs.push_back(input.detach().requires_grad_(input.requires_grad()));
    }
    Tensors wanted = inputs;
    wanted.insert(wanted.end(), segment->parameters.begin(), segment->parameters.end());
    const at::AutoGradMode grad(true);
    const Tensors outputs = segment->fn(std::move(inputs));
    Tensors found = torch::autograd::grad(outputs, wanted, gradients, /*retain_graph=*/std::nullopt,
                                          /*create_graph=*/false, /*allow_unused=*/true);
    found.insert(found.begin(), at::Tensor());  // of the segment
    return found;
  }
};

}  // namespace

Tensors checkpoint_2018(const dtk::policies::ModuleFn& fn, const Tensors& inputs, const Tensors& parameters,
                        SavedBytes& saved) {
  auto segment = c10::make_intrusive<Segment>();
  segment->fn = fn;
  segment->inputs = inputs;
  segment->parameters = parameters;
  for (const at::Tensor& input : inputs) segment->held.push_back(saved.hold(input));
  Tensors all = inputs;
  all.insert(all.end(), parameters.begin(), parameters.end());
  return Checkpoint2018::apply(segment, at::TensorList(all));
}

}  // namespace examples
