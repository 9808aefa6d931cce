// Networks of LibTorch's own modules, which the planner has never heard of: planned and trained on the CPU,
// every storage compared, and explained.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/planner/explain.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/phase_meter.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adam.h>

#include <functional>
#include <sstream>
#include <utility>

#include "support/catch.h"
#include "support/plans/plan_accuracy.h"

using namespace dtk;
using namespace dtk::policies;
using namespace torch::nn;

namespace {

struct Subject {
  std::string name;
  std::function<Sequential()> net;
  at::DimVector input;
};

constexpr int64_t kChannels = 6, kSide = 8;

Sequential images(const AnyModule& norm, bool bias = true) {
  Sequential net(Conv2d(Conv2dOptions(3, kChannels, 3).padding(1).bias(bias)));
  net->push_back(norm);
  net->push_back(Conv2d(Conv2dOptions(kChannels, 2, 1)));
  return net;
}

const std::vector<Subject>& subjects() {
  const at::DimVector image{4, 3, kSide, kSide};
  static const std::vector<Subject> list = {
      {"BatchNorm1d",
       [] { return Sequential(Linear(5, kChannels), BatchNorm1d(kChannels), Linear(kChannels, 2)); },
       {7, 5}},
      {"BatchNorm2d", [] { return images(AnyModule(BatchNorm2d(kChannels)), false); }, image},
      {"BatchNorm2d without parameters",
       [] { return images(AnyModule(BatchNorm2d(BatchNorm2dOptions(kChannels).affine(false)))); }, image},
      {"BatchNorm2d without statistics",
       [] {
         return images(AnyModule(BatchNorm2d(BatchNorm2dOptions(kChannels).track_running_stats(false))));
       },
       image},
      {"InstanceNorm2d", [] { return images(AnyModule(InstanceNorm2d(kChannels))); }, image},
      {"InstanceNorm2d with parameters",
       [] { return images(AnyModule(InstanceNorm2d(InstanceNorm2dOptions(kChannels).affine(true)))); },
       image},
      {"InstanceNorm2d with parameters and statistics",
       [] {
         return images(AnyModule(
             InstanceNorm2d(InstanceNorm2dOptions(kChannels).affine(true).track_running_stats(true))));
       },
       image},
      {"GroupNorm", [] { return images(AnyModule(GroupNorm(GroupNormOptions(2, kChannels)))); }, image},
      {"LayerNorm",
       [] {
         return images(AnyModule(LayerNorm(LayerNormOptions({kSide, kSide}))));
       },
       image}};
  return list;
}

// Two steps of Adam, and a forward pass in evaluation.
void train(const Subject& subject) {
  Sequential net = subject.net();
  const at::Tensor x = at::randn(subject.input);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    const PhaseScope forward("forward");
    at::Tensor loss = net->forward(x).square().mean();
    const PhaseScope backward("backward");
    torch::autograd::backward({std::exchange(loss, {})}, {});
    const PhaseScope update("update");
    optimizer.step();
  }
  const PhaseScope phase("validate");
  const at::NoGradGuard no_grad;
  net->eval();
  net->forward(x);
}

std::vector<LoggedPhase> storages(const std::function<void()>& job) {
  cpu_accounts().reset_phases("build");
  return event_log_of(cpu_accounts(), job);
}

}  // namespace

TEST_CASE("plans of LibTorch's own norms are exact: training with Adam, and evaluation") {
  for (const Subject& subject : subjects()) {
    std::vector<LoggedPhase> planned, measured;
    planner::simulate(at::kCPU,
                      [&](const planner::EndOfPlan&) { planned = storages([&] { train(subject); }); });
    {
      const CountingAllocatorGuard counting;
      measured = storages([&] { train(subject); });
    }
    INFO(subject.name);
    REQUIRE(measured.size() == 5);
    CHECK(described(differences(planned, measured, /*births=*/true)) == "");
    CHECK(measured[1].kept.bytes > measured[0].kept.bytes);
  }
}

TEST_CASE("explain: a network of convolutions and stock batch norms, on the CPU and on a device") {
  constexpr int64_t batch = 4;
  const int64_t image = 4 * batch * kSide * kSide;  // bytes of one channel
  for (const c10::Device device : {c10::Device(c10::kCPU), c10::Device("cuda:0")}) {
    const auto job = [&](const Run& run) {
      Conv2d first(Conv2dOptions(3, kChannels, 3).padding(1).bias(false)),
          last(Conv2dOptions(kChannels, 2, 1));
      BatchNorm2d norm(kChannels);
      for (Module* module : {static_cast<Module*>(first.get()), static_cast<Module*>(norm.get()),
                             static_cast<Module*>(last.get())}) {
        module->to(device);
        planner::claim_state(module->named_parameters().pairs(), module->named_buffers().pairs());
      }
      const auto part = [&run](const char* path, auto& module, at::Tensor x) {
        const ModuleFn fn = [&module](Tensors&& in) { return Tensors{module->forward(in[0])}; };
        return run(path, fn, {std::move(x)}).front();
      };
      const at::Tensor x = at::randn({batch, 3, kSide, kSide}, device);
      const PhaseScope forward("forward");
      at::Tensor loss = part("last", last, part("norm", norm, part("first", first, x))).sum();
      const PhaseScope backward("backward");
      torch::autograd::backward({std::exchange(loss, {})}, {});
    };
    planner::ExplainOptions options;
    options.recompute = [](std::string_view path, const ModuleFn& fn, Tensors&& in) {
      return checkpoint(path, fn, std::move(in));
    };
    const planner::Explanation why = planner::explain(device, job, options);
    CAPTURE(device);
    REQUIRE(why.plain.segments.size() == 3);
    CHECK(why.plain.segments[0].saves == 3 * image);
    // Its input and two statistics.
    CHECK(why.plain.segments[1].saves == kChannels * image + 2 * 4 * kChannels);
    CHECK(why.plain.segments[2].saves == kChannels * image);
    CHECK(why.recomputed);
  }
}
