#include "forum_cnn/training.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <dtk/planner/explain.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <utility>

#include "support/training_memory.h"

namespace examples {
namespace {

using namespace dtk::policies;

constexpr int kSteps = 3;  // the first makes the gradients; the others are alike

struct Batch {
  at::Tensor x, target;
};

Batch make_batch(const NetworkShape& shape) {
  const OwnerScope owner(Category::data, "batch");
  at::Tensor x = at::randn(shape.input);
  return {std::move(x), at::randn(shape.result())};
}

class Training {
 public:
  /// `run`: of segments; null: as the job's variant has them.
  Training(const Job& job, Outcome& outcome, Run run = nullptr)
      : job_(job),
        run_(std::move(run)),
        outcome_(outcome),
        net_(job.shape),
        adam_(job.optimizer, net_.parameters()),
        batch_(make_batch(job.shape)) {
    dtk::planner::claim_state(net_.named_parameters().pairs());
    for (const at::Tensor& parameter : net_.parameters()) {
      outcome_.parameters += parameter.numel();
      ++outcome_.gradients_expected;
    }
  }

  void step(bool read_loss) {
    zero_gradients();
    const at::Tensor loss = forward_and_backward();
    count_gradients();
    {
      const PhaseScope phase("optimizer");
      adam_.step();
    }
    if (read_loss) outcome_.losses.push_back(loss.item<float>());
  }

 private:
  void zero_gradients() {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : net_.parameters()) {
      if (parameter.grad().defined()) parameter.mutable_grad().zero_();
    }
  }

  // The network's result lives until backward is done, as in a training loop that looks at it.
  at::Tensor forward_and_backward() {
    const at::Tensor output =
        run_ != nullptr ? net_.forward(batch_.x, job_.variant, run_) : net_.forward(batch_.x, job_.variant);
    // A copy: on the CPU the loss lies in the storage of its terms, as large as the result.
    at::Tensor loss = at::mse_loss(output, batch_.target).clone();
    outcome_.saved_bytes = kept_.saved()->bytes();
    const PhaseScope phase("backward");
    torch::autograd::backward({loss}, {});
    return loss.detach();
  }

  void count_gradients() {
    outcome_.gradients_received = 0;
    for (const at::Tensor& parameter : net_.parameters()) {
      if (parameter.grad().defined()) ++outcome_.gradients_received;
    }
  }

  const Job& job_;
  const Run run_;
  Outcome& outcome_;
  const SavedBytesScope kept_;
  ForumNet net_;
  Adam adam_;
  Batch batch_;
};

void train(const Job& job, Outcome& outcome, bool read_loss, const Run& segments = nullptr) {
  at::manual_seed(1);
  std::optional<Training> training(std::in_place, job, outcome, segments);
  const PhaseScope phase("forward");
  for (int i = 0; i < kSteps; ++i) training->step(read_loss);
  training.reset();  // within a phase of the steps: "build" ends where they begin
}

Outcome run(const Job& job, bool read_loss) {
  Outcome outcome;
  outcome.phases = peaks_of([&] { train(job, outcome, read_loss); });
  return outcome;
}

}  // namespace

Outcome measure(const Job& job) {
  const CountingAllocatorGuard counting;
  return run(job, /*read_loss=*/true);
}

Outcome plan(const Job& job) {
  std::optional<Outcome> outcome;
  dtk::planner::simulate(at::kCPU, [&](const auto&) { outcome = run(job, /*read_loss=*/false); });
  return *outcome;
}

dtk::planner::Explanation explain(const Job& job, const std::vector<std::pair<std::string, Job>>& others) {
  const auto planned = [](const Job& one, const Run& segments) {
    Outcome outcome;
    train(one, outcome, /*read_loss=*/false, segments);
  };
  dtk::planner::ExplainOptions options;
  options.recompute = [](std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    return checkpoint(path, fn, std::move(inputs));
  };
  options.recomputes = job.variant != Variant::plain;
  for (const auto& [name, other] : others) {
    options.alternatives.emplace_back(name, [planned, other = other] { planned(other, nullptr); });
  }
  return dtk::planner::explain(
      at::kCPU, [&](const Run& segments) { planned(job, segments); }, options);
}

}  // namespace examples
