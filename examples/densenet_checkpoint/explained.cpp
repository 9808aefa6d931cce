#include "densenet_checkpoint/explained.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>

#include <utility>

namespace examples {
namespace {

using namespace dtk::policies;

// The optimizer makes it in its first step.
void claim_momentum(const torch::optim::SGD& optimizer) {
  for (const auto& [parameter, state] : optimizer.state()) {
    claim(static_cast<const torch::optim::SGDParamState&>(*state).momentum_buffer(), Category::optimizer,
          "momentum");
  }
}

void train(const DenseNetOptions& options, const Settings& settings, const Run& run) {
  const RunSegment segments = [&run](const std::string& path, const ModuleFn& fn, Tensors&& inputs,
                                     const Tensors&) { return run(path, fn, std::move(inputs)); };
  DenseNet net(options, StatisticsRule::every_pass, segments);
  dtk::planner::claim_state(net.named_parameters().pairs(), net.named_buffers().pairs());
  torch::optim::SGD optimizer(net.parameters(), sgd_options());
  std::optional<OwnerScope> owner(std::in_place, Category::data, "batch");
  const at::Tensor images = at::randn({settings.batch, 3, 32, 32});
  const at::Tensor labels = at::randint(options.classes, {settings.batch}, at::kLong);
  owner.reset();
  constexpr int steps = 2;  // the first makes gradients and momentum
  const PhaseScope forward("forward");
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad(/*set_to_none=*/false);
    at::Tensor loss = at::cross_entropy_loss(net.forward(images), labels);
    {
      const PhaseScope phase("backward");
      torch::autograd::backward({std::exchange(loss, {})}, {});
    }
    const PhaseScope phase("optimizer");
    optimizer.step();
    claim_momentum(optimizer);
  }
}

}  // namespace

dtk::planner::Explanation explain(const Settings& settings) {
  const DenseNetOptions options = DenseNetOptions::of_depth(settings.depth);
  dtk::planner::ExplainOptions how;
  how.recomputes = true;
  how.recompute = [](std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    return checkpoint(path, fn, std::move(inputs));
  };
  return dtk::planner::explain(
      at::kCPU, [&](const Run& run) { train(options, settings, run); }, how);
}

}  // namespace examples
