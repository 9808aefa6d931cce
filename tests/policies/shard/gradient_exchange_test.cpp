// What the exchange of gradients takes, to the byte, and what it refuses. Its bits are those of processes:
// ranks_test.py.
#include <ATen/ATen.h>
#include <dtk/planner/planned_group.h>
#include <dtk/policies/gradient_exchange.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/shards.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "support/catch.h"

using namespace dtk::policies;
using Catch::Matchers::Equals;

namespace {

// Two units of 16,384 elements each (65,536 bytes), a third of 100 elements in two cells of 64.
NamedTensors parameters() {
  const auto of = [](std::vector<int64_t> shape) {
    const at::Tensor parameter = at::ones(shape).requires_grad_();
    claim_gradient_when_written(parameter, "net");
    return parameter;
  };
  return {{"first.weight", of({128, 128})},
          {"frozen", at::ones({1000})},
          {"second.weight", of({128, 128})},
          {"second.bias", of({100})}};
}

at::Tensor loss_of(const NamedTensors& all) {
  at::Tensor x = at::ones({1, 128});
  x = at::matmul(at::matmul(x, all[0].second), all[2].second);
  return x.narrow(1, 0, 100).mul(all[3].second).sum();
}

struct Job {
  NamedTensors all = parameters();
  Shards shards;
  GradientExchange exchange;

  explicit Job(int ranks, GradientSums sums = GradientSums::ordered, bool divides = false)
      : shards(dtk::planner::planned_group(0, ranks), all, {.divides = divides, .min_unit = 65'536}),
        exchange(shards, sums) {}
  const TrafficByCollective& sent() const { return shards.collectives()->sent(); }

  void run(std::vector<bool> contributes, bool is_last) {
    exchange.begin_round({contributes, is_last});
    const at::Tensor loss = loss_of(all);
    exchange.set_value(loss.detach());
    torch::autograd::backward({loss}, {});
    exchange.end_round();
  }
};

int64_t gradients() {
  return cpu_accounts().live().of(Category::gradients);
}

constexpr int64_t kUnit = 65'536, kLast = 512;  // bytes

}  // namespace

TEST_CASE(
    "gradient exchange: between rounds a rank holds its part of the sums, undivided behind the last all") {
  const CountingAllocatorGuard counting;
  const at::Tensor before = loss_of(parameters());
  {
    const NamedTensors alone = parameters();
    torch::autograd::backward({loss_of(alone)}, {});
    CHECK(alone[0].second.grad().nbytes() + alone[2].second.grad().nbytes() +
              alone[3].second.grad().nbytes() ==
          2 * kUnit + 400);
  }
  Job job(2);
  job.run({true, true}, /*is_last=*/false);
  CHECK(gradients() == kUnit + kLast / 2);
  job.run({true, true}, /*is_last=*/true);
  CHECK(gradients() == 2 * kUnit + kLast);
  const at::Tensor& bias = job.all[3].second;
  CHECK(bias.grad().sizes() == bias.sizes());
  CHECK(bias.grad().storage().nbytes() == kLast);
  CHECK(bias.grad().nbytes() == 400);
  job.exchange.release();
  CHECK(gradients() == 0);
  CHECK_FALSE(bias.grad().defined());
}

TEST_CASE("gradient exchange: divided, a rank has the sums of its own parts, and of no others") {
  const CountingAllocatorGuard counting;
  Job job(2, GradientSums::ordered, /*divides=*/true);
  job.run({true, true}, /*is_last=*/false);
  job.run({true, true}, /*is_last=*/true);
  CHECK(gradients() == kUnit + kLast / 2);
  const at::Tensor &weight = job.shards.own()[0].second, &bias = job.shards.own()[2].second;
  CHECK(weight.grad().sizes() == at::IntArrayRef({128 * 64}));
  CHECK(bias.grad().sizes() == at::IntArrayRef({64}));
  for (const auto& [name, parameter] : job.all) CHECK_FALSE(parameter.grad().defined());
  CHECK(job.sent() ==
        TrafficByCollective{{"allreduce", {16, 4}}, {"alltoall", {2 * (kUnit + kLast / 2), 6}}});
  job.exchange.release();
  CHECK(gradients() == 0);
  CHECK_FALSE(bias.grad().defined());
}

TEST_CASE("gradient exchange: of four ranks each holds a quarter between rounds") {
  const CountingAllocatorGuard counting;
  Job job(4);
  job.run({true, true, true, true}, /*is_last=*/false);
  // Of two cells the first two ranks have one.
  CHECK(gradients() == 2 * kUnit / 4 + 64 * 4);
  job.exchange.release();
}

TEST_CASE(
    "gradient exchange: a rank sends its gradients to those that add them, and its part of the sums to all") {
  Job job(2);
  job.run({true, true}, /*is_last=*/false);
  const int64_t half = kUnit + kLast / 2;  // of both units and the third
  const Traffic values{8, 2};              // of each round: two ranks, a float each, there and back
  CHECK(job.sent() == TrafficByCollective{{"allreduce", values}, {"alltoall", {half, 3}}});
  job.exchange.count_again(2);
  CHECK(job.sent().at("alltoall") == Traffic{3 * half, 9});
  job.run({true, true}, /*is_last=*/true);
  CHECK(job.sent().at("alltoall") == Traffic{4 * half, 12});
  CHECK(job.sent().at("broadcast") == Traffic{half, 3});
  CHECK(job.sent().at("allreduce") == Traffic{32, 8});
  job.exchange.release();
}

TEST_CASE("gradient exchange: native, a rank adds its own between rounds, and sends them once") {
  const CountingAllocatorGuard counting;
  Job job(2, GradientSums::native);
  job.run({true, true}, /*is_last=*/false);
  CHECK(gradients() == 2 * kUnit + 400);
  CHECK(job.sent() == TrafficByCollective{{"allreduce", {8, 2}}});
  job.run({true, true}, /*is_last=*/true);
  CHECK(gradients() == 2 * kUnit + kLast);
  const Traffic half{kUnit + kLast / 2, 3};
  CHECK(job.sent() == TrafficByCollective{{"allreduce", {16, 4}}, {"alltoall", half}, {"broadcast", half}});
  job.exchange.release();
  CHECK(gradients() == 0);
  // A rank whose last round has nothing sends what it had before.
  job.run({true, true}, /*is_last=*/false);
  job.exchange.begin_round({{false, true}, /*is_last=*/true});
  job.exchange.end_round();
  CHECK(job.sent().at("alltoall") == Traffic{2 * half.bytes, 6});
  job.exchange.release();
  // Of a step before nothing is left.
  job.exchange.begin_round({{false, true}, /*is_last=*/true});
  job.exchange.end_round();
  CHECK(job.sent().at("alltoall") == Traffic{2 * half.bytes, 6});
  job.exchange.release();
  CHECK(gradients() == 0);
}

TEST_CASE(
    "gradient exchange: while backward runs, two buckets and what is received of them are beside the sums") {
  const CountingAllocatorGuard counting;
  constexpr int kUnits = 6;
  NamedTensors chain;
  for (int i = 0; i < kUnits; ++i)
    chain.emplace_back("layers." + std::to_string(i), at::ones({128, 128}).requires_grad_());
  Shards shards(dtk::planner::planned_group(0, 2), chain, {.divides = false, .min_unit = kUnit});
  GradientExchange exchange(shards);
  exchange.begin_round({{true, true}, /*is_last=*/false});
  at::Tensor x = at::ones({1, 128});
  for (const auto& [name, weight] : chain) x = at::matmul(x, weight);
  const at::Tensor loss = x.sum();
  x.reset();
  cpu_accounts().reset_phases("backward");
  const int64_t before = cpu_accounts().live_bytes();
  torch::autograd::backward({loss}, {});
  const int64_t peak = cpu_accounts().phases().back().peak.bytes - before;
  // When the gradient of the first unit, the last that is sent, is copied to its bucket: both of them, the
  // buckets of the two behind it, which are on their way, with what two ranks send of their half, the sums of
  // the three that have arrived, and the gradient of the loss, without the six rows that forward kept.
  CHECK(peak == 6 * kUnit + 3 * kUnit / 2 + 4 - 6 * 512);
  exchange.end_round();
  exchange.release();
}

TEST_CASE(
    "gradient exchange: a rank without a micro-batch takes part, and a round of no weight costs nothing") {
  const CountingAllocatorGuard counting;
  Job job(2);
  job.exchange.begin_round({{false, true}, /*is_last=*/false});
  job.exchange.end_round();
  CHECK(gradients() == kUnit + kLast / 2);
  CHECK(job.sent() == TrafficByCollective{{"allreduce", {8, 2}}});
  job.exchange.begin_round({{false, false}, /*is_last=*/true});
  job.exchange.end_round();
  CHECK(gradients() == 2 * kUnit + kLast);
  job.exchange.release();
}

TEST_CASE("gradient exchange: the first parameter that a pass does not reach is named") {
  Job job(2);
  job.exchange.begin_round({{true, true}, /*is_last=*/true});
  torch::autograd::backward({job.all[3].second.sum()}, {});
  CHECK_THROWS_WITH(
      job.exchange.end_round(),
      Equals("distributed: no gradient of a micro-batch reached first.weight and 1 more; where several "
             "ranks train, each micro-batch's loss must depend on all that is trained; train it on one "
             "rank"));
  job.exchange.release();
  job.run({true, true}, /*is_last=*/true);
  CHECK(job.all[0].second.grad().defined());
  job.exchange.release();
}

TEST_CASE("gradient exchange: parameters that do not lie in fp32 without gaps are refused") {
  const at::Tensor turned = at::ones({4, 8}).t().requires_grad_();
  const auto group = dtk::planner::planned_group(0, 2);
  CHECK_THROWS_WITH(
      Shards(group, {{"turned", turned}}),
      Equals("distributed: gradients of several ranks are added in fp32 as they lie, and turned is Float "
             "with sizes [8, 4] and strides [1, 8]; train it on one rank"));
  CHECK_THROWS_AS(Shards(group, {{"frozen", at::ones({2})}}), std::invalid_argument);
  Shards alone({{"turned", turned}});
  CHECK_THROWS_AS(GradientExchange(alone), std::invalid_argument);
}

TEST_CASE(
    "gradient exchange: a backward pass outside of a round is an error, and none once the exchange is gone") {
  NamedTensors all;
  {
    Job job(2);
    all = job.all;
    CHECK_THROWS_AS(torch::autograd::backward({loss_of(all)}, {}), std::logic_error);
    job.exchange.release();
  }
  torch::autograd::backward({loss_of(all)}, {});
  CHECK(all[0].second.grad().defined());
}
