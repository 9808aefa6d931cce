// State that outlives a segment: stock batch norms and counters end as after a plain run, bit for bit.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/internal/checkpoint_policy.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <limits>
#include <optional>
#include <vector>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/policies/segment_tests.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using dtk::test::Fixture;
using dtk::test::kPlain;
using dtk::test::kSegment;
using dtk::test::same_bits;
using dtk::test::test_device;
using dtk::test::Wrap;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNorm1dOptions;

namespace {

constexpr int64_t kRows = 8, kChannels = 3;

at::Tensor batch(int step) {
  at::manual_seed(step);
  return (at::randn({kRows, kChannels}) * 2 + step).to(test_device());
}

BatchNorm1d norm_of(const BatchNorm1dOptions& options) {
  BatchNorm1d norm(options);
  norm->to(test_device());
  return norm;
}

at::Tensor weights() {
  return at::full({kChannels}, 0.75, test_device()).requires_grad_(true);
}

const Wrap kNested = [](const ModuleFn& fn, Tensors&& in) {
  const ModuleFn outer = [fn](Tensors&& x) {
    Tensors h = checkpoint("net.inner", fn, std::move(x));
    return Tensors{h[0].sin()};
  };
  return checkpoint("net", outer, std::move(in));
};
const Wrap kPlainNested = [](const ModuleFn& fn, Tensors&& in) {
  return Tensors{fn(std::move(in))[0].sin()};
};

struct State {
  at::Tensor mean, variance, batches;
  int64_t changes_of_counter = 0;
};

template <class Norm>
State state_of(const Norm& norm) {
  return {norm->running_mean.clone(), norm->running_var.clone(),
          norm->num_batches_tracked.defined() ? norm->num_batches_tracked.clone() : at::Tensor(),
          norm->num_batches_tracked.defined() ? version_of(norm->num_batches_tracked) : 0};
}

void check_same(const State& a, const State& b) {
  CHECK_VALUES(same_bits(a.mean, b.mean));
  CHECK_VALUES(same_bits(a.variance, b.variance));
  REQUIRE(a.batches.defined() == b.batches.defined());
  if (a.batches.defined()) CHECK_VALUES(at::equal(a.batches, b.batches));
  CHECK(a.changes_of_counter == b.changes_of_counter);
}

void check_same(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK_VALUES(same_bits(a[i], b[i]));
}

struct StateAndGradients {
  State state;
  Tensors gradients;
};

}  // namespace

TEST_CASE("after any number of steps a batch norm's statistics and counter are those of a plain run",
          "[device]") {
  Fixture fixture;
  const std::optional<double> momentum = GENERATE(std::optional<double>(0.1), std::optional<double>());
  const bool nested = GENERATE(false, true);
  CAPTURE(momentum.has_value(), nested);
  if (!momentum) NEEDS_VALUES("the average over all batches is weighted by the counter's value");
  const auto train = [&](const Wrap& wrap) {
    const BatchNorm1d norm = norm_of(BatchNorm1dOptions(kChannels).momentum(momentum));
    const at::Tensor w = weights();
    const int64_t before = version_of(norm->num_batches_tracked);
    for (int step = 0; step < 7; ++step) {
      const ModuleFn fn = [&](Tensors&& in) { return Tensors{BatchNorm1d(norm)(in[0] * w).tanh()}; };
      torch::autograd::backward({wrap(fn, {batch(step)})[0].pow(2).sum()}, {});
    }
    CHECK(version_of(norm->num_batches_tracked) == before + 7);
    CHECK_VALUES(norm->num_batches_tracked.item<int64_t>() == 7);
    return StateAndGradients{state_of(norm), {w.grad(), norm->weight.grad(), norm->bias.grad()}};
  };
  const StateAndGradients plain = train(nested ? kPlainNested : kPlain),
                          segment = train(nested ? kNested : kSegment);
  CHECK_VALUES(!at::equal(plain.state.mean, at::zeros({kChannels}, test_device())));
  check_same(plain.state, segment.state);
  check_same(plain.gradients, segment.gradients);
}

TEST_CASE("a batch norm in a segment that keeps results") {
  Fixture fixture;
  const std::string entry = GENERATE("result", "aten::tanh", "aten::native_batch_norm");
  CAPTURE(entry);
  const Wrap keeping = [&](const ModuleFn& fn, Tensors&& in) {
    return checkpoint("net", fn, std::move(in), std::make_shared<KeptResults>(std::vector{entry}));
  };
  const auto train = [&](const Wrap& wrap) {
    const BatchNorm1d norm = norm_of(BatchNorm1dOptions(kChannels));
    const at::Tensor w = weights();
    for (int step = 0; step < 3; ++step) {
      const ModuleFn fn = [&](Tensors&& in) {
        const at::Tensor h = named("result", (BatchNorm1d(norm)(in[0] * w) * w).tanh());
        return Tensors{h.exp() * w};
      };
      torch::autograd::backward({wrap(fn, {batch(step)})[0].sum()}, {});
    }
    return StateAndGradients{state_of(norm), {w.grad(), norm->weight.grad(), norm->bias.grad()}};
  };
  const StateAndGradients plain = train(kPlain), segment = train(keeping);
  check_same(plain.state, segment.state);
  check_same(plain.gradients, segment.gradients);
}

TEST_CASE("a batch norm whose input needs no gradient is updated once a step too, with weights or without",
          "[device]") {
  Fixture fixture;
  const bool affine = GENERATE(true, false);
  const auto train = [&](const Wrap& wrap) {
    const BatchNorm1d norm = norm_of(BatchNorm1dOptions(kChannels).affine(affine));
    const at::Tensor w = weights();
    for (int step = 0; step < 3; ++step) {
      const ModuleFn fn = [&](Tensors&& in) { return Tensors{(BatchNorm1d(norm)(in[0]) * w).exp()}; };
      torch::autograd::backward({wrap(fn, {batch(step)})[0].sum()}, {});
    }
    return StateAndGradients{state_of(norm), {w.grad()}};
  };
  const StateAndGradients plain = train(kPlain), segment = train(kSegment);
  check_same(plain.state, segment.state);
  check_same(plain.gradients, segment.gradients);
}

TEST_CASE("passes without backward, without gradients, with two backwards or in two micro-batches count once",
          "[device]") {
  Fixture fixture;
  const auto train = [&](const Wrap& wrap) {
    BatchNorm1d norm = norm_of(BatchNorm1dOptions(kChannels));
    const ModuleFn fn = [&](Tensors&& in) { return Tensors{BatchNorm1d(norm)(in[0]).exp()}; };
    const auto loss = [&](int step) { return wrap(fn, {batch(step)})[0].sum(); };
    loss(0);  // no backward
    {
      const at::NoGradGuard statistics_only;
      loss(1);
    }
    const at::Tensor twice = loss(2);
    torch::autograd::backward({twice}, {}, /*retain_graph=*/true);
    torch::autograd::backward({twice}, {});
    const at::Tensor first = loss(3), second = loss(4);
    torch::autograd::backward({second}, {});
    torch::autograd::backward({first}, {});
    norm->eval();
    torch::autograd::backward({loss(5)}, {});
    CHECK_VALUES(norm->num_batches_tracked.item<int64_t>() == 5);
    return StateAndGradients{state_of(norm), {norm->weight.grad(), norm->bias.grad()}};
  };
  const StateAndGradients plain = train(kPlain), segment = train(kSegment);
  check_same(plain.state, segment.state);
  check_same(plain.gradients, segment.gradients);
}

TEST_CASE("a batch that is not finite leaves the same statistics as in a plain run") {
  Fixture fixture;
  const auto train = [&](const Wrap& wrap) {
    const BatchNorm1d norm(kChannels);
    at::Tensor x = batch(0);
    x[0][0].fill_(std::numeric_limits<float>::infinity());
    const ModuleFn fn = [&](Tensors&& in) { return Tensors{BatchNorm1d(norm)(in[0]).exp()}; };
    torch::autograd::backward({wrap(fn, {x})[0].sum()}, {});
    return state_of(norm);
  };
  check_same(train(kPlain), train(kSegment));
}

TEST_CASE("an instance norm's statistics are updated once, though it changes copies of them inside") {
  Fixture fixture;
  const auto train = [&](const Wrap& wrap) {
    const torch::nn::InstanceNorm1d norm(
        torch::nn::InstanceNorm1dOptions(kChannels).affine(true).track_running_stats(true));
    for (int step = 0; step < 3; ++step) {
      const ModuleFn fn = [&](Tensors&& in) { return Tensors{torch::nn::InstanceNorm1d(norm)(in[0]).exp()}; };
      at::manual_seed(step);
      torch::autograd::backward({wrap(fn, {at::randn({5, kChannels, 7})})[0].sum()}, {});
    }
    return StateAndGradients{state_of(norm), {norm->weight.grad(), norm->bias.grad()}};
  };
  const StateAndGradients plain = train(kPlain), segment = train(kSegment);
  CHECK_FALSE(at::equal(plain.state.mean, at::zeros({kChannels})));
  check_same(plain.state, segment.state);
  check_same(plain.gradients, segment.gradients);
}

TEST_CASE("counters and statistics of the segment's own are recomputed as in forward") {
  Fixture fixture;
  const at::Tensor lasting = at::zeros({2}, at::kLong), x = batch(0).requires_grad_(true);
  const auto gradient = [&](const Wrap& wrap) {
    lasting.zero_();
    const ModuleFn fn = [&](Tensors&& in) {
      lasting.add_(3);
      at::Tensor own = at::zeros({}, at::kLong);
      own += 2;
      at::Tensor mean = at::zeros({kChannels}), variance = at::ones({kChannels});
      const at::Tensor h =
          at::batch_norm(in[0] * own, {}, {}, mean, variance, true, 0.5, 1e-5, /*cudnn_enabled=*/false);
      return Tensors{(h.exp() * mean) * own, variance};
    };
    Tensors out = wrap(fn, {x});
    const at::Tensor loss = (out[0] * out[1]).sum();
    const Tensors all = torch::autograd::grad({loss}, {x});
    CHECK(at::equal(lasting, at::full({2}, 3, at::kLong)));
    return all;
  };
  check_same(gradient(kPlain), gradient(kSegment));
}

TEST_CASE("the checkpointing policy takes stock batch norms") {
  Fixture fixture;
  const auto train = [&](bool with_policy) {
    CheckpointOptions options;
    options.targets = {"blocks.*"};
    CheckpointPolicy policy(options, {"blocks.0", "blocks.1"});
    Seam seam;
    if (with_policy) policy.apply(seam);
    const BatchNorm1d norms[] = {BatchNorm1d(kChannels), BatchNorm1d(kChannels)};
    for (int step = 0; step < 3; ++step) {
      Tensors h{batch(step)};
      for (const int i : {0, 1}) {
        const ModuleFn fn = [&norms, i](Tensors&& in) { return Tensors{BatchNorm1d(norms[i])(in[0]).exp()}; };
        h = seam.run("blocks." + std::to_string(i), fn, std::move(h));
      }
      torch::autograd::backward({h[0].sum()}, {});
    }
    return std::vector<State>{state_of(norms[0]), state_of(norms[1])};
  };
  const std::vector<State> plain = train(false), segments = train(true);
  check_same(plain[0], segments[0]);
  check_same(plain[1], segments[1]);
}
