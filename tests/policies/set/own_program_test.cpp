// The set of all policies as a program of its own uses it: options, seam, engine and steps.
#include <ATen/ATen.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/policy_set.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

struct CountingOptimizer {
  int steps = 0;
  void step() { ++steps; }
};

// Two modules that multiply by the one parameter.
struct TwiceNet {
  at::Tensor weight = at::ones({4}).requires_grad_();
  Seam seam;

  at::Tensor forward(at::Tensor x) const {
    const auto block = [this](at::Tensor in) { return (in * weight).sin(); };
    for (const char* path : {"blocks.0", "blocks.1"}) x = seam.module(path, block, std::move(x));
    return x.sum();
  }
};

Subject subject(const TwiceNet& net) {
  return {at::kCPU, {{"weight", net.weight}}, {"blocks.0", "blocks.1"}};
}

}  // namespace

TEST_CASE("a module of one tensor runs through the seam and is handed the last reference to its input") {
  Seam seam;
  std::vector<std::string> seen;
  seam.run = [&seen, inner = seam.run](std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    seen.emplace_back(path);
    CHECK(inputs.size() == 1);
    return inner(path, fn, std::move(inputs));
  };
  const at::Tensor result = seam.module(
      "a.b",
      [](at::Tensor x) {
        CHECK(x.use_count() == 1);
        return x + 1;
      },
      at::ones({2}));
  CHECK(at::equal(result, at::full({2}, 2.0f)));
  CHECK(seen == std::vector<std::string>{"a.b"});
}

TEST_CASE("a set needs no other object for checkpointing to act, and changes no gradient") {
  const at::Tensor x = at::arange(4, at::kFloat);
  TwiceNet plain, checkpointed;
  torch::autograd::backward({plain.forward(x)}, {});
  PolicySet policies({}, subject(checkpointed), checkpointed.seam);
  const CheckpointCounts before = checkpoint_counts();
  torch::autograd::backward({checkpointed.forward(x)}, {});
  CHECK(checkpoint_counts().recomputes - before.recomputes == 2);
  CHECK(at::equal(checkpointed.weight.grad(), plain.weight.grad()));
}

TEST_CASE("a step is one of the optimizer and one of each policy") {
  TwiceNet net;
  PolicySet policies({}, subject(net), net.seam);
  CountingOptimizer optimizer;
  policies.step(optimizer);
  CHECK(optimizer.steps == 1);
  for (const auto& policy : policies.list()) {
    if (policy->name() == "ema") CHECK(policy->state().counters.at("updates") == 1);
  }
}

TEST_CASE("with all of them off, no policy acts") {
  TwiceNet net;
  const PolicySet policies(PolicyOptions::all_off(), subject(net), net.seam);
  const std::vector<PolicyReport> reports = policies.reports();
  size_t count = 0;
  const PolicyOptions all;
  PolicyOptions::tables(all, [&](const char*, const auto&) { ++count; });
  CHECK(reports.size() == count);
  for (const PolicyReport& report : reports) {
    CAPTURE(report.policy);
    CHECK_FALSE(report.active);
  }
}
