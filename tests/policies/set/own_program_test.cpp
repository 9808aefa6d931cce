// The set of all policies as a program of its own uses it: options, seam, engine and steps.
#include <ATen/ATen.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

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
  PolicyOptions options;
  options.checkpoint.targets = {"blocks.*"};
  PolicySet policies(options, subject(checkpointed), checkpointed.seam);
  const CheckpointCounts before = checkpoint_counts();
  torch::autograd::backward({checkpointed.forward(x)}, {});
  CHECK(checkpoint_counts().recomputes - before.recomputes == 2);
  CHECK(at::equal(checkpointed.weight.grad(), plain.weight.grad()));
}

TEST_CASE("where nobody names modules, those that the model repeats are recomputed, and save their bytes") {
  constexpr int64_t rows = 64, width = 32, layers = 3;
  NamedTensors parameters;
  std::vector<std::string> paths;
  for (int i = 0; i < layers; ++i) {
    paths.push_back("trunk.layer" + std::to_string(i));
    for (const char* name : {".in.weight", ".out.weight"})
      parameters.emplace_back(paths.back() + name, at::randn({width, width}).requires_grad_());
  }
  const CountingAllocatorGuard counting;
  const at::Tensor x = at::randn({rows, width});
  // Bytes that backward needs, and the gradient of the first weight.
  const auto train = [&](PolicyOptions options) {
    options.ema.enabled = options.precision.enabled = Enabled::off;
    Seam seam;
    PolicySet policies(options, {at::kCPU, parameters, paths}, seam);
    for (auto& [name, parameter] : parameters) parameter.mutable_grad() = at::Tensor();
    const int64_t before = cpu_accounts().live_bytes();
    at::Tensor out = x;
    for (size_t i = 0; i < paths.size(); ++i) {
      const at::Tensor in = parameters[2 * i].second, back = parameters[2 * i + 1].second;
      const auto block = [in, back](at::Tensor h) { return at::mm(at::mm(h, in).sin(), back).cos(); };
      out = seam.module(paths[i], block, std::move(out));
    }
    const at::Tensor loss = std::exchange(out, {}).sum();
    const int64_t kept = cpu_accounts().live_bytes() - before;
    torch::autograd::backward({loss}, {});
    return std::pair(kept, parameters.front().second.grad().clone());
  };
  PolicyOptions off;
  off.checkpoint.enabled = Enabled::off;
  const auto [all, gradient] = train(off);
  const auto [inputs, same] = train({});
  constexpr int64_t activation = rows * width * 4;
  // Three of each layer; its input, but for x, either way.
  CHECK(all - inputs == 3 * layers * activation);
  CHECK(all - inputs == 73'728);
  CHECK(at::equal(gradient, same));
  Seam seam;
  for (const PolicyReport& report : PolicySet({}, {at::kCPU, parameters, paths}, seam).reports()) {
    if (report.policy == "checkpoint")
      CHECK(report.reason ==
            "recomputes 3 modules in 3 segments, from trunk.layer0 to trunk.layer2, which repeat");
  }
}

TEST_CASE("a model that repeats nothing is told so, and refused where checkpointing was asked for") {
  const auto reason = [](const Subject& subject) {
    Seam seam;
    const PolicyReport report = PolicySet({}, subject, seam).reports()[4];
    CHECK_FALSE(report.active);
    return report.reason;
  };
  const Subject unlike = {at::kCPU, {{"a.w", at::ones({4})}, {"b.w", at::ones({5})}}, {"a", "b"}};
  const std::string none =
      "no module repeats: no two that follow each other have parameters of the same shapes";
  CHECK(reason(unlike) == none);
  CHECK(
      reason({at::kCPU, {{"w", at::ones({4})}}, {"a", "b"}}) ==
      "which modules repeat is not known: no parameter's name begins with the path of a module, and none is "
      "numbered");
  PolicyOptions asked;
  asked.checkpoint.enabled = Enabled::on;
  Seam seam;
  CHECK_THROWS_WITH(PolicySet(asked, unlike, seam),
                    "policies.checkpoint.targets names none, and " + none +
                        "; name modules, or set policies.checkpoint.enabled = false");
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
  CHECK(reports.size() == policy_kinds(/*ranks=*/1).size());
  for (const PolicyReport& report : reports) {
    CAPTURE(report.policy);
    CHECK_FALSE(report.active);
  }
}
