// Activation checkpointing: exact counts and bytes, gradients bit-equal to the plain run. [device]: on any.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/policies/reentrant_checkpoint.h"
#include "support/policies/segment_tests.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using dtk::test::DeviceMemory;
using dtk::test::Fixture;
using dtk::test::on_cpu;
using dtk::test::same_bits;
using dtk::test::test_device;

namespace {

constexpr int64_t kBlockRows = 32, kWidth = 16, kInner = 64;
constexpr int64_t kInputBytes = kBlockRows * kWidth * 4;

// LN, linear, GELU, dropout 0.1, linear, residual.
struct Block {
  at::Tensor w1 = at::randn({kInner, kWidth}, test_device()).mul_(0.2).requires_grad_(true);
  at::Tensor b1 = at::randn({kInner}, test_device()).mul_(0.2).requires_grad_(true);
  at::Tensor w2 = at::randn({kWidth, kInner}, test_device()).mul_(0.2).requires_grad_(true);
  std::shared_ptr<int> runs = std::make_shared<int>(0);

  Tensors operator()(Tensors&& in) const {
    ++*runs;
    at::Tensor x = std::move(in[0]);
    at::Tensor h = at::layer_norm(x, {kWidth});
    h = at::linear(h, w1, b1);
    h = at::gelu(h, "tanh");
    h = at::dropout(h, 0.1, true);
    h = at::linear(h, w2);
    Tensors out;
    out.push_back(x + h);
    return out;
  }
};

struct Net {
  std::vector<Block> blocks;
  at::Tensor input;
  explicit Net(size_t depth, bool input_needs_grad = true) {
    at::manual_seed(1);
    blocks.resize(depth);
    input = at::randn({kBlockRows, kWidth}, test_device()).requires_grad_(input_needs_grad);
    for (const at::Tensor& parameter : parameters()) claim(parameter, Category::parameters, "net");
  }
  Tensors parameters() const {
    Tensors all;
    for (const Block& block : blocks) all.insert(all.end(), {block.w1, block.b1, block.w2});
    return all;
  }
};

using WrapBlock = std::function<Tensors(const Block&, Tensors&&)>;
const WrapBlock kPlainBlock = [](const Block& block, Tensors&& in) { return block(std::move(in)); };
const WrapBlock kCheckpoint = [](const Block& block, Tensors&& in) {
  return checkpoint("block", block, std::move(in));
};

at::Tensor forward(const Net& net, const WrapBlock& wrap) {
  Tensors x{net.input};
  for (const Block& block : net.blocks) x = wrap(block, std::move(x));
  return x[0].pow(2).sum();
}

struct Trained {
  Tensors gradients;                // of the input, then of all parameters
  at::Tensor random;                // what the generator gives next
  int64_t saved_after_forward = 0;  // of the CPU's ledger only
  int64_t kept = 0;                 // alive after forward that was not before
  int runs = 0;
};

Trained train(const Net& net, const WrapBlock& wrap) {
  Tensors all = net.parameters();
  all.insert(all.begin(), net.input);
  for (const at::Tensor& tensor : all) tensor.mutable_grad().reset();
  for (const Block& block : net.blocks) *block.runs = 0;
  at::manual_seed(7);
  Trained outcome;
  {
    SavedTensorScope ledger(saved_tensor_ledger());
    const int64_t before = DeviceMemory::live();
    const at::Tensor loss = forward(net, wrap);
    outcome.kept = DeviceMemory::live() - before;
    outcome.saved_after_forward = cpu_accounts().live().of(Category::saved);
    torch::autograd::backward({loss}, {});
  }
  for (const at::Tensor& tensor : all) outcome.gradients.push_back(tensor.grad());
  outcome.random = at::rand({4}, test_device());
  for (const Block& block : net.blocks) outcome.runs += *block.runs;
  return outcome;
}

void check_equal(const Trained& a, const Trained& b) {
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    INFO("gradient " << i);
    REQUIRE(a.gradients[i].defined() == b.gradients[i].defined());
    if (a.gradients[i].defined()) CHECK_VALUES(same_bits(a.gradients[i], b.gradients[i]));
  }
  CHECK_VALUES(same_bits(a.random, b.random));
}

}  // namespace

TEST_CASE("the baseline is one: it repeats bit for bit, saves more, and runs each block once", "[device]") {
  Fixture fixture;
  const Net net(4);
  train(net, kPlainBlock);  // what libraries take for good at their first call is there from now on
  const Trained plain = train(net, kPlainBlock), again = train(net, kPlainBlock);
  check_equal(plain, again);
  CHECK(plain.runs == 4);
  // Per block: input of LN, mean and rstd of each row; input of w1 (the LN output); input of GELU; of dropout
  // the scaled noise (fp32 on the CPU, else a mask of bytes); input of w2. Then the input of pow.
  const int64_t noise = kBlockRows * kInner * (on_cpu() ? 4 : 1);
  const int64_t block = kInputBytes + 2 * kBlockRows * 4 + kInputBytes + 2 * kBlockRows * kInner * 4 + noise;
  if (on_cpu()) CHECK(plain.saved_after_forward == 4 * block + kInputBytes);
  CHECK(plain.kept == 4 * block + 4);  // the net's input was there before; the loss came
}

TEST_CASE(
    "checkpointed blocks keep their inputs only and run twice; gradients and random state are bit-equal",
    "[device]") {
  Fixture fixture;
  const Net net(4);
  train(net, kPlainBlock);
  const Trained plain = train(net, kPlainBlock);
  const CheckpointCounts before = checkpoint_counts();
  const Trained saved = train(net, kCheckpoint);
  const CheckpointCounts after = checkpoint_counts();
  if (on_cpu()) CHECK(saved.saved_after_forward == 4 * kInputBytes + kInputBytes);  // and the input of pow
  CHECK(saved.kept == 4 * kInputBytes + 4);
  CHECK(saved.runs == 8);
  CHECK(after.recomputes - before.recomputes == 4);
  CHECK(after.early_stops - before.early_stops == 4);
  check_equal(plain, saved);
  CHECK(cpu_accounts().live().of(Category::saved) == 0);
}

TEST_CASE("what is kept for a segment is counted as that module's, whatever scope it is called from") {
  Fixture fixture;
  const SavedTensorScope ledger(saved_tensor_ledger());
  const Block block;
  const ModulePathScope around("loss");
  const Tensors out = checkpoint("blocks.7", block, {at::ones({kBlockRows, kWidth})});
  CHECK(cpu_accounts().live().items().at(Category::saved) ==
        std::map<std::string, int64_t>{{"blocks.7", kInputBytes}});
}

TEST_CASE("two blocks in one segment keep one input", "[device]") {
  Fixture fixture;
  const Net net(4);
  const Trained plain = train(net, kPlainBlock);
  std::unique_ptr<CheckpointSegment> chain;
  int calls = 0;
  const Trained chained = train(net, [&](const Block& block, Tensors&& in) {
    if (calls++ % 2 == 0) chain = std::make_unique<CheckpointSegment>();
    return chain->append("block", block, std::move(in));
  });
  if (on_cpu()) CHECK(chained.saved_after_forward == 2 * kInputBytes + kInputBytes);
  CHECK(chained.kept == 2 * kInputBytes + 4);
  CHECK(chained.runs == 8);
  check_equal(plain, chained);
}

TEST_CASE("nested segments keep less and stay bit-equal", "[device]") {
  Fixture fixture;
  const Net net(4);
  const Trained plain = train(net, kPlainBlock);
  const auto half = [&](size_t first) {
    return [&net, first](Tensors&& in) {
      Tensors x = checkpoint("inner", net.blocks[first], std::move(in));
      return checkpoint("inner", net.blocks[first + 1], std::move(x));
    };
  };
  size_t calls = 0;
  const Trained nested = train(net, [&](const Block&, Tensors&& in) {
    const size_t index = calls++;
    return index % 2 == 0 ? checkpoint("outer", half(index), std::move(in)) : std::move(in);
  });
  CHECK(nested.kept == 2 * kInputBytes + 4);
  check_equal(plain, nested);
}

TEST_CASE("a checkpointed block's casts of weights are gone when it is done, not when the forward pass is",
          "[device]") {
  Fixture fixture;
  const Net net(4);
  train(net, kPlainBlock);
  const AutocastGuard bf16(test_device().type(), true);
  const SavedTensorScope ledger(saved_tensor_ledger());
  int64_t before = DeviceMemory::live();
  at::linear(net.input.detach(), net.blocks[0].w1);
  CHECK(DeviceMemory::live() - before == 2 * kInner * kWidth);  // what autocast keeps of one weight
  at::autocast::clear_cache();
  before = DeviceMemory::live();
  const at::Tensor loss = forward(net, kCheckpoint);
  CHECK(DeviceMemory::live() - before == 4 * kInputBytes + 4);
}

TEST_CASE("the reentrant form gives the same gradients") {
  Fixture fixture;
  const Net net(3);
  const Trained plain = train(net, kPlainBlock);
  const Trained reentrant = train(net, [](const Block& block, Tensors&& in) {
    return dtk::test::reentrant_checkpoint(block, in, {block.w1, block.b1, block.w2});
  });
  CHECK(reentrant.runs == 6);
  check_equal(plain, reentrant);
}

TEST_CASE("a first segment whose input needs no gradient still gives its parameters theirs") {
  Fixture fixture;
  const Net net(3, /*input_needs_grad=*/false);
  const Trained plain = train(net, kPlainBlock), saved = train(net, kCheckpoint);
  CHECK_FALSE(plain.gradients[0].defined());
  CHECK(saved.gradients[1].defined());
  check_equal(plain, saved);
}

TEST_CASE("under autocast the recomputation casts as forward did, and frees its casts") {
  Fixture fixture;
  const Net net(3);
  const auto run = [&](const WrapBlock& wrap) {
    for (const at::Tensor& p : net.parameters()) p.mutable_grad().reset();
    at::manual_seed(7);
    at::Tensor loss;
    {
      AutocastGuard guard(at::kCPU, true);
      loss = forward(net, wrap).to(at::kFloat);
    }
    torch::autograd::backward({loss}, {});
    Tensors gradients;
    for (const at::Tensor& p : net.parameters()) gradients.push_back(p.grad());
    return gradients;
  };
  const Tensors plain = run(kPlainBlock);
  const int64_t before = cpu_accounts().live_bytes();
  const Tensors saved = run(kCheckpoint);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(at::equal(plain[i], saved[i]));
  int64_t gradients = 0;
  for (const at::Tensor& gradient : saved) gradients += static_cast<int64_t>(gradient.nbytes());
  CHECK(cpu_accounts().live_bytes() == before + gradients);  // no cast weight is left
}

TEST_CASE("scopes of autocast within a segment cast a weight as often in the recomputation as in forward",
          "[device]") {
  Fixture fixture;
  const at::Tensor w = at::randn({kWidth, kWidth}).to(test_device()).requires_grad_(true);
  const at::Tensor x = at::randn({kBlockRows, kWidth}).to(test_device()).requires_grad_(true);
  const ModuleFn twice = [&](Tensors&& in) {
    at::Tensor h = std::move(in[0]);
    for (int i = 0; i < 2; ++i) {
      const AutocastGuard bf16(test_device().type(), true);
      h = at::matmul(h, w).to(at::kFloat);
    }
    return Tensors{h.sin() * h};
  };
  const auto gradients = [&](bool segment, bool within_scope, bool backward_within) {
    at::Tensor loss;
    {
      std::optional<AutocastGuard> outer;
      if (within_scope) outer.emplace(test_device().type(), false);
      loss = (segment ? checkpoint("net", twice, {x}) : twice({x}))[0].sum();
    }
    std::optional<AutocastGuard> outer;
    if (backward_within) outer.emplace(test_device().type(), true);
    return torch::autograd::grad({loss}, {x, w});
  };
  for (const bool within_scope : {false, true}) {
    for (const bool backward_within : {false, true}) {
      CAPTURE(within_scope, backward_within);
      const Tensors plain = gradients(false, within_scope, backward_within);
      const Tensors segment = gradients(true, within_scope, backward_within);
      CHECK_VALUES(same_bits(plain[0], segment[0]));
      CHECK_VALUES(same_bits(plain[1], segment[1]));
    }
  }
}

TEST_CASE("casts of a recomputation are freed also within a scope of autocast that lives on") {
  const CountingAllocatorGuard counting;
  const SavedTensorEngineGuard engine;
  const at::Tensor x = at::ones({2, 8}).set_requires_grad(true), w = at::ones({8, 8}).set_requires_grad(true);
  const AutocastGuard bf16(at::kCPU, true, at::kBFloat16);
  const ModuleFn fn = [&](Tensors&& in) { return Tensors{at::linear(in[0], w).pow(2)}; };
  at::Tensor loss = checkpoint("block", fn, {x})[0].sum();
  at::autocast::clear_cache();  // of forward's cast
  torch::autograd::backward({loss}, {});
  loss.reset();
  x.mutable_grad().reset();
  w.mutable_grad().reset();
  const int64_t before = cpu_accounts().live_bytes();
  at::autocast::clear_cache();
  CHECK(cpu_accounts().live_bytes() == before);
}

TEST_CASE("autocast's cache is on or off in the recomputation as it was in forward") {
  Fixture fixture;
  const at::Tensor w = at::ones({4, 4}).requires_grad_(true);
  const bool cached = GENERATE(true, false);
  std::vector<bool> seen;
  const ModuleFn fn = [&](Tensors&& in) {
    seen.push_back(at::autocast::is_autocast_cache_enabled());
    return Tensors{at::linear(in[0], w).sin()};
  };
  at::autocast::set_autocast_cache_enabled(cached);
  const at::Tensor loss = checkpoint("net", fn, Tensors{at::ones({2, 4})})[0].sum();
  at::autocast::set_autocast_cache_enabled(true);
  torch::autograd::backward({loss}, {});
  CHECK(seen == std::vector<bool>{cached, cached});
  CHECK(at::autocast::is_autocast_cache_enabled());
}

TEST_CASE("retain_graph, autograd::grad and two micro-batches work", "[device]") {
  Fixture fixture;
  const Net net(2);
  at::manual_seed(7);
  const at::Tensor loss = forward(net, kCheckpoint);
  torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
  const at::Tensor once = net.blocks[0].w1.grad().clone();
  torch::autograd::backward({loss}, {});
  CHECK_VALUES(at::equal(net.blocks[0].w1.grad(), once * 2));
  at::manual_seed(7);
  const auto gradients = torch::autograd::grad({forward(net, kCheckpoint)}, {net.blocks[0].w1, net.input});
  CHECK_VALUES(at::equal(gradients[0], once));
}

TEST_CASE("without grad mode the segment just runs", "[device]") {
  Fixture fixture;
  const Net net(2);
  at::NoGradGuard no_grad;
  const CheckpointCounts before = checkpoint_counts();
  forward(net, kCheckpoint);
  CHECK(checkpoint_counts().segments == before.segments);
}

TEST_CASE("an input changed in place after forward is refused", "[device]") {
  Fixture fixture;
  Net net(2);
  const at::Tensor x = at::randn({kBlockRows, kWidth}).to(test_device());
  const at::Tensor out = checkpoint("block", net.blocks[0], Tensors{x})[0].sum();
  x.add_(1);
  CHECK_THROWS_WITH(torch::autograd::backward({out}, {}), Catch::Contains("was changed in place afterwards"));
}

TEST_CASE("graphs that are dropped without backward leave nothing behind", "[device]") {
  Fixture fixture;
  const Net net(2);
  const int64_t before = DeviceMemory::live(), cpu = cpu_accounts().live_bytes();
  for (int i = 0; i < 100; ++i) forward(net, kCheckpoint);
  CHECK(DeviceMemory::live() == before);
  CHECK(cpu_accounts().live_bytes() == cpu);
}
