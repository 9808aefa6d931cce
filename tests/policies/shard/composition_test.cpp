// What one of two ranks has of a DiT at rest, behind forward and behind backward, at both levels and beside
// any of the other policies: exact bytes, of each category. What autograd saves is what savings_test.cpp
// states for one rank; weights, sums of gradients and averages are those of the own parts.
#include <ATen/ATen.h>
#include <dtk/planner/planned_group.h>
#include <dtk/policies/gradient_exchange.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/saved_tensors.h>
#include <dtk/policies/shards.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "support/catch.h"
#include "support/policies/dit_steps.h"

using namespace dtk::policies;
using namespace dtk::test;

namespace {

constexpr int64_t kRanks = 2, N = 3, kFloat = 4;

int64_t live(Category category) {
  return cpu_accounts().live().of(category);
}

std::map<std::string, int64_t> live_by_path(Category category) {
  const auto items = cpu_accounts().live().items();
  const auto found = items.find(category);
  return found == items.end() ? std::map<std::string, int64_t>() : found->second;
}

ShardOptions shard(ShardLevel level) {
  return {.enabled = Enabled::on, .level = level, .min_unit = {16 << 10}};
}

// Bytes of what a rank updates.
struct Bytes {
  int64_t all = 0, own = 0;          // of the parameters
  int64_t all_units = 0, parts = 0;  // with what lies between them
  int64_t of_last_module = 0;        // units that the last module has a part in

  Bytes(const Shards& shards, const std::string& last) {
    for (size_t i = 0; i < shards.parameters().size(); ++i) {
      all += shards.parameters()[i].second.numel() * kFloat;
      own += shards.own_part(i).elements * kFloat;
    }
    for (size_t i = 0; i < shards.units().size(); ++i) {
      const ParameterUnit& unit = shards.units()[i];
      all_units += unit.elements * kFloat;
      const auto rank = static_cast<size_t>(shards.rank());
      parts += (shards.ends(i)[rank] - (rank == 0 ? 0 : shards.ends(i)[rank - 1])) * kFloat;
      const bool is_last =
          std::any_of(unit.members.begin(), unit.members.end(), [&](const ParameterUnit::Member& one) {
            return shards.parameters()[one.index].first.starts_with(last + ".");
          });
      if (is_last) of_last_module += unit.elements * kFloat;
    }
  }
};

// One step of rank `rank`, whose bytes are looked at on the way.
void check(const Combination& on, ShardLevel level, int rank) {
  CAPTURE(on.bf16, on.fused, on.checkpointed, on.fused_operators, text_of(level), rank);
  const bool is_divided = level == ShardLevel::parameters;
  dtk::models::Dit dit = make_dit();
  const int64_t whole = live(Category::parameters);
  PolicyOptions options = options_of(on);
  options.shard = shard(level);
  const ShardLayout layout{.min_unit = options.shard.min_unit.bytes, .modules = dit.paths(), .level = level};
  Shards shards(dtk::planner::planned_group(rank, kRanks), dit.parameters(), layout);
  Seam seam;
  PolicySet policies(options, {at::kCPU, dit.parameters(), dit.paths(), true, &shards}, seam);
  dit.seam.run = seam.run;
  dit.seam.attention = seam.attention;
  dit.seam.fuses = seam.fuses;
  dit.seam.keep = seam.keep;
  GradientExchange exchange(shards);

  const Bytes bytes(shards, dit.paths().back());
  REQUIRE(shards.units().size() > 4);
  // Cells of 64 elements: a unit's parts are as many or one more.
  const auto units = static_cast<int64_t>(shards.units().size());
  REQUIRE(std::abs(bytes.all_units - kRanks * bytes.parts) <= units * 64 * kFloat);
  REQUIRE(bytes.own < bytes.all * 6 / 10);
  const int64_t rest = whole - bytes.all + (is_divided ? bytes.parts : bytes.all_units);
  CHECK(live(Category::parameters) == rest);
  CHECK(live(Category::ema) == bytes.own);

  const auto [x, t, y] = batch_of(N);
  const int64_t at_start = cpu_accounts().live_bytes();
  {
    SavedTensorScope ledger(saved_tensor_ledger());
    exchange.begin_round({std::vector<bool>(kRanks, true), true});
    at::Tensor loss;
    {
      const auto scope = policies.forward_scope();
      loss = dit.forward(x, t, y, /*training=*/true).pow(2).sum();
    }
    CHECK(live(Category::parameters) == rest + (is_divided ? bytes.of_last_module : 0));
    auto saved = live_by_path(Category::saved), casts = live_by_path(Category::casts);
    constexpr int64_t c = N * kFloat * D;
    for (int64_t i = 0; i < kDepth; ++i) {
      const std::string path = "blocks." + std::to_string(i);
      // What all blocks share is the first one's that keeps it.
      CHECK(saved[path] == kept_by_block(on, N) + input_of_block(on, N) + (i == 0 ? c : 0));
      CHECK(casts[path] == casts_of_block(on));
    }
    CHECK(saved[""] == N * 64 * kFloat);
    torch::autograd::backward({loss}, {});
    exchange.end_round();
  }
  CHECK(live(Category::saved) == 0);
  CHECK(live(Category::casts) == 0);
  CHECK(live(Category::parameters) == rest);
  CHECK(live(Category::gradients) == bytes.parts);
  policies.before_step();
  policies.after_step();
  exchange.release();
  CHECK(live(Category::gradients) == 0);
  CHECK(cpu_accounts().live_bytes() == at_start);
}

}  // namespace

TEST_CASE(
    "two ranks: beside all other policies a rank has its parts, and what it saves is what one rank saves") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  for (const Combination& on : all_combinations())
    for (const ShardLevel level : {ShardLevel::optimizer, ShardLevel::parameters})
      for (const int rank : {0, 1}) check(on, level, rank);
}

TEST_CASE("two ranks: without the policy each has all sums and averages") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  dtk::models::Dit dit = make_dit();
  PolicyOptions options = options_of({false, false, false});
  options.shard.enabled = Enabled::off;
  Shards shards(dtk::planner::planned_group(0, kRanks), dit.parameters(),
                {.divides = false, .min_unit = 16 << 10});
  Seam seam;
  PolicySet policies(options, {at::kCPU, dit.parameters(), dit.paths(), true, &shards}, seam);
  GradientExchange exchange(shards);
  const Bytes bytes(shards, dit.paths().back());
  CHECK(bytes.own == bytes.all);
  CHECK(live(Category::ema) == bytes.all);
  const auto [x, t, y] = batch_of(N);
  exchange.begin_round({std::vector<bool>(kRanks, true), true});
  torch::autograd::backward({dit.forward(x, t, y, /*training=*/true).pow(2).sum()}, {});
  exchange.end_round();
  CHECK(live(Category::gradients) == bytes.all_units);
  exchange.release();
}
