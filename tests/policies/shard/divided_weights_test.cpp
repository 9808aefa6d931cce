// policies.shard.level = "parameters": what a rank has of the weights while no module runs, while one does
// and in backward, to the byte, and what is sent for it. Its bits are those of processes: ranks_test.py.
#include <ATen/ATen.h>
#include <dtk/planner/planned_group.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/shards.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "support/catch.h"

using namespace dtk::policies;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;

namespace {

constexpr int64_t kWidth = 64, kWeight = kWidth * kWidth * 4;  // bytes, a unit each

// Matrices in a chain of modules; with `alone` one more, in none.
struct Chain {
  explicit Chain(int64_t modules, bool alone = false) {
    for (int64_t i = 0; i < modules; ++i) {
      paths.push_back("layers." + std::to_string(i));
      weights.emplace_back(paths.back() + ".weight", at::ones({kWidth, kWidth}).requires_grad_());
    }
    if (alone) weights.emplace_back("scale", at::ones({kWidth, kWidth}).requires_grad_());
  }
  at::Tensor forward(at::Tensor x) const {
    for (size_t i = 0; i < paths.size(); ++i) {
      const at::Tensor weight = weights[i].second;
      x = seam.module(
          paths[i], [weight](const at::Tensor& in) { return at::sigmoid(at::mm(in, weight)); }, x);
    }
    return x;
  }
  ShardLayout layout() const {
    return {.min_unit = kWeight, .modules = paths, .level = ShardLevel::parameters};
  }

  std::vector<std::string> paths;
  NamedTensors weights;
  Seam seam;
};

PolicyOptions parameters_divided(bool checkpoint) {
  PolicyOptions options = PolicyOptions::all_off();
  options.shard.enabled = Enabled::by_default;
  options.shard.level = ShardLevel::parameters;
  if (checkpoint) {
    options.checkpoint.enabled = Enabled::on;
    options.checkpoint.targets = {"layers.*"};
  }
  return options;
}

int64_t gathered() {
  return cpu_accounts().live().of(Category::parameters);
}

int64_t broadcasts(const Shards& shards) {
  const auto& sent = shards.collectives()->sent();
  return sent.count("broadcast") == 0 ? 0 : sent.at("broadcast").messages;
}

}  // namespace

TEST_CASE("divided weights: at rest a rank has its own parts, and who reads more is told where to read it") {
  const CountingAllocatorGuard counting;
  const int64_t before = cpu_accounts().live_bytes();
  Chain chain(3);
  CHECK(cpu_accounts().live_bytes() - before == 3 * kWeight);
  Shards shards(dtk::planner::planned_group(1, 2), chain.weights, chain.layout());
  CHECK(cpu_accounts().live_bytes() - before == 3 * kWeight / 2);
  CHECK(shards.divides_weights());
  const at::Tensor& weight = chain.weights[1].second;
  CHECK(weight.sizes() == at::IntArrayRef({kWidth, kWidth}));
  CHECK(weight.is_leaf());
  CHECK_THROWS_WITH(
      weight.sum(),
      Contains("policies.shard.level = \"parameters\": layers.1.weight are not on this rank: they "
               "are read outside of the module that they lie in; read them in it, or set "
               "\"optimizer\""));
  CHECK(shards.own()[1].second.detach().eq(1).all().item<bool>());
  const at::NoGradGuard no_grad;  // no pass of a training
  {
    const Shards::Use use(shards, "layers.1");
    CHECK(cpu_accounts().live_bytes() - before == 5 * kWeight / 2);
    // The planned group gives nothing: the own half is there.
    CHECK(weight.detach()
              .view(-1)
              .narrow(0, kWidth * kWidth / 2, kWidth * kWidth / 2)
              .eq(1)
              .all()
              .item<bool>());
  }
  CHECK(cpu_accounts().live_bytes() - before == 5 * kWeight / 2);  // until another is used
  { const Shards::Use use(shards, "layers.2"); }
  CHECK(cpu_accounts().live_bytes() - before == 5 * kWeight / 2);
  CHECK_THROWS(weight.sum());
  shards.let_go();
  CHECK(cpu_accounts().live_bytes() - before == 3 * kWeight / 2);
}

TEST_CASE("divided weights: a module's are whole while it runs, and until its gradients are there") {
  const bool checkpoint = GENERATE(false, true);
  constexpr int64_t kModules = 4;
  const CountingAllocatorGuard counting;
  Chain chain(kModules);
  Shards shards(dtk::planner::planned_group(0, 2), chain.weights, chain.layout());
  PolicySet policies(parameters_divided(checkpoint), {at::kCPU, chain.weights, chain.paths, true, &shards},
                     chain.seam);
  const int64_t own = gathered();
  CHECK(own == kModules * kWeight / 2);
  std::vector<int64_t> at_gradient;
  at::Tensor loss;
  {
    const auto scope = policies.forward_scope();
    loss = chain.forward(at::ones({8, kWidth})).sum();
    CHECK(gathered() == own + kWeight);
  }
  CHECK(broadcasts(shards) == kModules);
  CHECK(gathered() == own + kWeight);  // the last module's, with which backward begins
  cpu_accounts().reset_phases("backward");
  loss.backward();
  CHECK(highest(cpu_accounts().phases()).peak.of(Category::parameters) == own + kWeight);
  CHECK(broadcasts(shards) == 2 * kModules - 1);
  CHECK(gathered() == own);
  for (const auto& [name, weight] : chain.weights) CHECK(weight.grad().sizes() == weight.sizes());
  policies.before_step();
  policies.after_step();
  CHECK(broadcasts(shards) == 2 * kModules - 1);
}

TEST_CASE("divided weights: as many units as asked for are gathered before their turn, and not one more") {
  const bool checkpoint = GENERATE(false, true);
  const int64_t prefetch = GENERATE(0, 1, 2);
  constexpr int64_t kModules = 5;
  const CountingAllocatorGuard counting;
  Chain chain(kModules);
  ShardLayout layout = chain.layout();
  layout.prefetch = prefetch;
  Shards shards(dtk::planner::planned_group(0, 2), chain.weights, layout);
  PolicySet policies(parameters_divided(checkpoint), {at::kCPU, chain.weights, chain.paths, true, &shards},
                     chain.seam);
  const int64_t own = gathered();
  for (const bool is_first : {true, false, false}) {
    cpu_accounts().reset_phases("forward");
    const int64_t before = broadcasts(shards);
    at::Tensor loss;
    {
      const auto scope = policies.forward_scope();
      loss = chain.forward(at::ones({8, kWidth})).sum();
    }
    CHECK(highest(cpu_accounts().phases()).peak.of(Category::parameters) == own + (1 + prefetch) * kWeight);
    // The first pass does not know yet what its backward pass needs.
    const int64_t ahead = is_first ? 0 : prefetch;
    CHECK(gathered() == own + (1 + ahead) * kWeight);
    cpu_accounts().reset_phases("backward");
    loss.backward();
    CHECK(highest(cpu_accounts().phases()).peak.of(Category::parameters) == own + (1 + ahead) * kWeight);
    CHECK(broadcasts(shards) - before == 2 * kModules - 1);
    CHECK(gathered() == own);
  }
}

TEST_CASE(
    "divided weights: those of modules that are no target stay from the begin of a pass to their gradients") {
  constexpr int64_t kModules = 4, kOthers = 2;  // the last ones
  const CountingAllocatorGuard counting;
  Chain chain(kModules);
  ShardLayout layout = chain.layout();
  layout.targets = {"layers.0", "layers.1"};
  layout.prefetch = 0;
  Shards shards(dtk::planner::planned_group(0, 2), chain.weights, layout);
  CHECK(shards.targets() == layout.targets);
  PolicySet policies(parameters_divided(true), {at::kCPU, chain.weights, chain.paths, true, &shards},
                     chain.seam);
  const int64_t own = gathered();
  at::Tensor loss;
  {
    const auto scope = policies.forward_scope();
    CHECK(gathered() == own + kOthers * kWeight);
    loss = chain.forward(at::ones({8, kWidth})).sum();
    CHECK(gathered() == own + (kOthers + 1) * kWeight);
  }
  CHECK(broadcasts(shards) == kModules);
  loss.backward();
  CHECK(gathered() == own);
  CHECK(broadcasts(shards) == kModules + 1);  // layers.0 alone again
}

TEST_CASE("divided weights: as bf16 half is sent, and takes half while it is on its way") {
  const bool halved = GENERATE(false, true);
  constexpr int64_t kModules = 3;
  constexpr float kValue = 1.001F, kRounded = 1.0F;  // as bf16 has it
  const CountingAllocatorGuard counting;
  Chain chain(kModules, /*alone=*/true);
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, weight] : chain.weights) weight.fill_(kValue);
  }
  ShardLayout layout = chain.layout();
  PolicyOptions options = parameters_divided(false);
  options.precision.enabled = Enabled::on;
  layout.gather = options.shard.gather = halved ? ShardGather::bf16 : ShardGather::fp32;
  Shards shards(dtk::planner::planned_group(0, 2), chain.weights, layout);
  PolicySet policies(options, {at::kCPU, chain.weights, chain.paths, true, &shards}, chain.seam);
  CHECK_THAT(policies.reports().at(3).reason,
             halved ? Contains("of these alone; matrices of 3 modules are sent as bf16")
                    : Contains("of these alone"));
  const int64_t own = gathered(), sent = halved ? kWeight / 2 : kWeight;  // of a unit, by both ranks
  const auto value = [&](size_t weight) { return chain.weights[weight].second.flatten()[0].item<float>(); };
  at::Tensor loss;
  cpu_accounts().reset_phases("forward");
  {
    const auto scope = policies.forward_scope();
    CHECK(gathered() == own + kWeight);  // what lies in no module
    CHECK(value(kModules) == kValue);
    at::Tensor x = at::ones({8, kWidth});
    for (size_t i = 0; i < kModules; ++i) {
      const auto product = [&, weight = chain.weights[i].second](const at::Tensor& in) {
        CHECK(value(i) == (halved ? kRounded : kValue));
        CHECK(gathered() == own + 2 * kWeight + (i + 1 < kModules ? sent : 0));
        // Autocast's copy is no parameter.
        return at::sigmoid(at::mm(in, weight));
      };
      x = chain.seam.module(chain.paths[i], product, x);
    }
    loss = x.sum();
  }
  CHECK(highest(cpu_accounts().phases()).peak.of(Category::parameters) == own + 2 * kWeight + sent);
  CHECK(shards.collectives()->sent().at("broadcast").bytes == kWeight / 2 + kModules * sent / 2);
  loss.backward();
  CHECK(shards.collectives()->sent().at("broadcast").bytes == kWeight / 2 + (2 * kModules - 1) * sent / 2);
  policies.before_step();
  CHECK(gathered() == own);
  CHECK(shards.own()[0].second.flatten()[0].item<float>() == kValue);
}

TEST_CASE("divided weights: as bf16 a matrix that autocast does not round is refused where it is read") {
  const bool kept = GENERATE(false, true);  // another watches the operators of a segment, too
  Chain chain(1);
  chain.paths.emplace_back("table");
  chain.weights.emplace_back("table.weight", at::ones({8, kWidth}).requires_grad_());
  ShardLayout layout = chain.layout();
  PolicyOptions options = parameters_divided(kept);
  if (kept) options.checkpoint.targets = {"*"};
  if (kept) options.checkpoint.keep = std::vector<std::string>{"sum"};
  options.precision.enabled = Enabled::on;
  options.shard.gather = layout.gather = ShardGather::bf16;
  Shards shards(dtk::planner::planned_group(0, 2), chain.weights, layout);
  PolicySet policies(options, {at::kCPU, chain.weights, chain.paths, true, &shards}, chain.seam);
  const auto scope = policies.forward_scope();
  const at::Tensor rows = at::zeros({2}, at::kLong);
  const auto product = [weight = chain.weights[0].second](const at::Tensor& in) {
    return at::mm(in, weight);
  };
  const auto row = [weight = chain.weights[1].second](const at::Tensor& in) {
    return at::embedding(weight, in.to(at::kLong));
  };
  const at::Tensor x = at::ones({2, kWidth});
  CHECK_NOTHROW(chain.seam.module("layers.0", product, x));
  CHECK_THROWS_MATCHES(
      chain.seam.module("table", row, rows), PolicyError,
      Catch::Matchers::Message("policies.shard.gather = \"bf16\" would change results: in table "
                               "aten::embedding reads table.weight as "
                               "it is, and autocast does not round it; name other modules in "
                               "policies.shard.targets, or remove it"));
}

TEST_CASE("divided weights: as bf16 vectors are sent as they are") {
  const int rank = GENERATE(0, 1);
  constexpr float kValue = 1.001F, kRounded = 1.0F;
  const at::Tensor weight = at::full({kWidth, kWidth}, kValue).requires_grad_();
  const at::Tensor bias = at::full({kWidth}, kValue).requires_grad_();
  const at::Tensor kernel = at::full({2, 2, 4, 4}, kValue).requires_grad_();
  Shards shards(dtk::planner::planned_group(rank, 2),
                {{"layer.weight", weight}, {"layer.bias", bias}, {"layer.kernel", kernel}},
                {.modules = {"layer"}, .level = ShardLevel::parameters, .gather = ShardGather::bf16});
  shards.begin_pass();
  const Shards::Use use(shards, "layer");
  // Of 64 + 1 + 1 cells of 64 elements the first 33 are rank 0's.
  constexpr int64_t kCell = 64;
  const int64_t sent = rank == 0 ? 33 * 2 * kCell : (31 * 2 + 4 + 2) * kCell;
  CHECK(shards.collectives()->sent().at("broadcast").bytes == sent);
  const auto last = [](const at::Tensor& values) { return values.flatten()[-1].item<float>(); };
  if (rank == 0) {
    CHECK(weight[0][0].item<float>() == kRounded);
  } else {
    CHECK(last(weight) == kRounded);
    CHECK(last(bias) == kValue);
    CHECK(last(kernel) == kRounded);
  }
}

TEST_CASE("divided weights: what was gathered for a module that does not come goes") {
  const CountingAllocatorGuard counting;
  Chain chain(4);
  Shards shards(dtk::planner::planned_group(0, 2), chain.weights, chain.layout());
  PolicySet policies(parameters_divided(false), {at::kCPU, chain.weights, chain.paths, true, &shards},
                     chain.seam);
  const int64_t own = gathered();
  const at::NoGradGuard no_grad;
  const auto run = [&](size_t i) {
    const at::Tensor weight = chain.weights[i].second;
    chain.seam.module(
        chain.paths[i], [weight](const at::Tensor& in) { return at::mm(in, weight); }, at::ones({1, kWidth}));
  };
  {
    const auto scope = policies.forward_scope();
    run(0);
    CHECK(gathered() == own + 2 * kWeight);  // its own and that of the next
    run(2);
    CHECK(gathered() == own + 2 * kWeight);
    CHECK(broadcasts(shards) == 4);
    run(3);
    CHECK(gathered() == own + kWeight);
    CHECK(broadcasts(shards) == 4);
    run(0);  // another evaluation in the pass
    CHECK(gathered() == own + 2 * kWeight);
  }
  CHECK(gathered() == own);
}

TEST_CASE("divided weights: a pass without gradients lets the last go") {
  const CountingAllocatorGuard counting;
  Chain chain(2);
  Shards shards(dtk::planner::planned_group(0, 2), chain.weights, chain.layout());
  PolicySet policies(parameters_divided(false), {at::kCPU, chain.weights, chain.paths, true, &shards},
                     chain.seam);
  const int64_t own = gathered();
  {
    const at::NoGradGuard no_grad;
    const auto scope = policies.forward_scope();
    chain.forward(at::ones({8, kWidth}));
    CHECK(gathered() == own + kWeight);
  }
  CHECK(gathered() == own);
  // One that stopped in its midst leaves nothing to the next.
  CHECK_THROWS([&] {
    const auto scope = policies.forward_scope();
    const at::Tensor out = chain.forward(at::ones({8, kWidth}));
    out.register_hook([](const at::Tensor&) { throw std::runtime_error("stopped"); });
    out.sum().backward();
  }());
  { const auto scope = policies.forward_scope(); }
  CHECK(gathered() == own);
}

TEST_CASE("divided weights: those of no module are whole from the begin of a pass to their gradients") {
  const CountingAllocatorGuard counting;
  Chain chain(2, /*alone=*/true);
  Shards shards(dtk::planner::planned_group(0, 2), chain.weights, chain.layout());
  PolicySet policies(parameters_divided(false), {at::kCPU, chain.weights, chain.paths, true, &shards},
                     chain.seam);
  const int64_t own = gathered();
  const at::Tensor& scale = chain.weights.back().second;
  CHECK_THROWS(scale.sum());
  at::Tensor loss;
  {
    const auto scope = policies.forward_scope();
    CHECK(gathered() == own + kWeight);
    loss = at::mm(chain.forward(at::ones({8, kWidth})), scale).sum();
    CHECK(gathered() == own + 2 * kWeight);
  }
  loss.backward();
  CHECK(gathered() == own);
  CHECK(broadcasts(shards) == 1 + 2 + 1);
  {
    const at::NoGradGuard no_grad;
    const auto scope = policies.forward_scope();
    at::mm(chain.forward(at::ones({8, kWidth})), scale);
    CHECK(gathered() == own + 2 * kWeight);
  }
  CHECK(gathered() == own);
}

TEST_CASE(
    "divided weights: a pass that leaves a module out would have the other ranks wait, and is refused") {
  Chain chain(3);
  Shards shards(dtk::planner::planned_group(0, 2), chain.weights, chain.layout());
  PolicySet policies(parameters_divided(false), {at::kCPU, chain.weights, chain.paths, true, &shards},
                     chain.seam);
  const auto run = [&](size_t first, size_t end) {
    const auto scope = policies.forward_scope();
    at::Tensor x = at::ones({8, kWidth});
    for (size_t i = first; i < end; ++i) {
      const at::Tensor weight = chain.weights[i].second;
      x = chain.seam.module(
          chain.paths[i], [weight](const at::Tensor& in) { return at::mm(in, weight); }, x);
    }
    return x.sum();
  };
  const std::string why =
      ": all ranks gather the weights of the modules together, so that each pass runs each of them once, in "
      "the order of their paths; where that cannot be, set \"optimizer\"";
  CHECK_THROWS_WITH(run(1, 3), Equals("policies.shard.level = \"parameters\": a pass comes to layers.1, and "
                                      "next is layers.0" +
                                      why));
  CHECK_THROWS_WITH(run(0, 2).backward(), Equals("policies.shard.level = \"parameters\": a pass comes to "
                                                 "backward, and next is layers.2" +
                                                 why));
  run(0, 3).backward();
  CHECK(chain.weights[0].second.grad().defined());
}

TEST_CASE("divided weights: what cannot be divided so is refused") {
  const Chain chain(2);
  PolicyOptions options = parameters_divided(false);
  Shards divided(dtk::planner::planned_group(0, 2), chain.weights, chain.layout());
  Shards whole(dtk::planner::planned_group(0, 2), Chain(2).weights);
  const auto put_in = [&](Shards& shards) {
    Seam seam;
    PolicySet(options, {at::kCPU, shards.parameters(), chain.paths, true, &shards}, seam);
  };
  CHECK_THROWS_WITH(
      put_in(whole),
      Equals("policies.shard.level = \"parameters\", and Subject::shards divides no weights; lay "
             "them out with level = parameters"));
  options.shard.level = ShardLevel::optimizer;
  CHECK_THROWS_WITH(
      put_in(divided),
      Equals("policies.shard.level = \"optimizer\", and Subject::shards divides weights; lay them "
             "out with level = optimizer"));
  options.shard.level = ShardLevel::parameters;
  options.shard.enabled = Enabled::off;
  CHECK_THROWS_WITH(
      put_in(divided),
      Equals("policies.shard.enabled = false, and Subject::shards divides the parameters; lay them "
             "out with divides = false"));
  // The options of what is switched off are no error.
  Shards replicated(dtk::planner::planned_group(0, 2), Chain(2).weights, {.divides = false});
  options.shard.prefetch = 3;
  for (const ShardLevel level : {ShardLevel::optimizer, ShardLevel::parameters, ShardLevel::automatic}) {
    options.shard.level = level;
    CHECK_NOTHROW(put_in(replicated));
  }
  options.shard.enabled = Enabled::by_default;
  options.shard.prefetch = 1;
  options.shard.gather = ShardGather::bf16;
  options.shard.level = ShardLevel::optimizer;
  CHECK_THROWS_WITH(put_in(whole),
                    Equals("policies.shard.gather = \"bf16\" has no effect: weights are gathered before "
                           "their use where policies.shard.level = \"parameters\"; set that, or remove it"));
  options.shard.level = ShardLevel::parameters;
  CHECK_THROWS_WITH(put_in(divided), Equals("policies.shard.gather = \"bf16\", and Subject::shards sends "
                                            "weights as fp32; lay them out with the same"));
  ShardLayout halved = chain.layout();
  halved.gather = ShardGather::bf16;
  Shards as_bf16(dtk::planner::planned_group(0, 2), Chain(2).weights, halved);
  CHECK_THROWS_WITH(
      put_in(as_bf16),
      Equals(
          "policies.shard.gather = \"bf16\" sends weights as autocast rounds them, and here nothing does "
          "(fp32: policies.precision.enabled = false); set policies.precision.enabled = true, or remove it"));
  options.precision.enabled = Enabled::on;
  CHECK_NOTHROW(put_in(as_bf16));
  options.precision.fp32 = {"layers.1"};
  CHECK_THROWS_WITH(put_in(as_bf16),
                    Equals("policies.shard.gather = \"bf16\" would round the weights of layers.1, which "
                           "policies.precision.fp32 keeps; name other modules in policies.shard.targets, or "
                           "remove it"));
  halved.targets = {"layers.0"};
  Shards but_one(dtk::planner::planned_group(0, 2), Chain(2).weights, halved);
  CHECK_NOTHROW(put_in(but_one));
  options.shard.gather = ShardGather::fp32;
  CHECK_THROWS_WITH(put_in(but_one), Equals("policies.shard.gather = \"fp32\", and Subject::shards sends "
                                            "weights as bf16; lay them out with the same"));
  halved.targets = {};
  CHECK_THROWS_WITH(
      Shards(dtk::planner::planned_group(0, 2), Chain(2).weights, halved),
      Equals("policies.shard.targets names no module, so that all weights would be whole in each "
             "pass; name some, such as [\"*\"], or take level = \"optimizer\""));
  halved.targets = {"layer.*"};
  CHECK_THROWS_WITH(Shards(dtk::planner::planned_group(0, 2), Chain(2).weights, halved),
                    StartsWith("policies.shard.targets"));
  options.shard.level = ShardLevel::automatic;
  CHECK_THROWS_WITH(put_in(whole),
                    Equals("policies.shard.level = \"auto\" is chosen before there are policies, by a "
                           "plan; set \"optimizer\" or \"parameters\""));
}
