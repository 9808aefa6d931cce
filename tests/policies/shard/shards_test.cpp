// Which elements each rank updates, what gathering them takes, to the byte, and the policy that does it. Its
// bits are those of processes: ranks_test.py.
#include <ATen/ATen.h>
#include <dtk/planner/planned_group.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/shards.h>

#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "support/catch.h"

using namespace dtk::policies;
using Catch::Matchers::Equals;

namespace {

// Units, with 1 KiB each: a and b (100 elements and 200, in cells of 64: 2 and 4), then c (10: 1).
NamedTensors abc() {
  const auto of = [](std::vector<int64_t> shape) { return at::ones(shape).requires_grad_(); };
  return {{"a", of({10, 10})}, {"frozen", at::ones({1000})}, {"b", of({200})}, {"c", of({2, 5})}};
}

const ShardLayout kLayout{.min_unit = 1024};

Shards shards_of(int rank, int ranks, ShardLayout layout = kLayout) {
  return {dtk::planner::planned_group(rank, ranks), abc(), layout};
}

PolicyOptions only_shard_and_ema() {
  PolicyOptions options = PolicyOptions::all_off();
  options.shard.enabled = options.ema.enabled = Enabled::by_default;
  return options;
}

}  // namespace

TEST_CASE(
    "shards: of parameters one after the other, in cells of 64, each rank has what begins and ends so") {
  using Parts = std::vector<std::pair<int64_t, int64_t>>;
  const auto parts = [](int rank, int ranks) {
    const Shards shards = shards_of(rank, ranks);
    Parts all;
    for (size_t i = 0; i < 3; ++i) {
      const ParameterPart part = shards.own_part(i);
      CHECK(shards.own()[i].second.numel() == part.elements);
      all.emplace_back(part.begin, part.elements);
    }
    return all;
  };
  // Six cells: three each; then one.
  CHECK(parts(0, 2) == Parts{{0, 100}, {0, 64}, {0, 10}});
  CHECK(parts(1, 2) == Parts{{0, 0}, {64, 136}, {0, 0}});
  // 2, 1, 2, 1 of six.
  CHECK(parts(0, 4) == Parts{{0, 100}, {0, 0}, {0, 10}});
  CHECK(parts(1, 4) == Parts{{0, 0}, {0, 64}, {0, 0}});
  CHECK(parts(2, 4) == Parts{{0, 0}, {64, 128}, {0, 0}});
  CHECK(parts(3, 4) == Parts{{0, 0}, {192, 8}, {0, 0}});
  const Shards shards = shards_of(0, 2);
  REQUIRE(shards.units().size() == 2);
  CHECK(shards.units()[0].label == "a and 1 more");
  CHECK(shards.units()[1].label == "c");
  CHECK(shards.index_of("c") == 2);
  CHECK_FALSE(shards.index_of("frozen"));
}

TEST_CASE("shards: modules that wait for their weights share no unit with others") {
  const auto weights = [] {
    NamedTensors all;
    for (const char* const name :
         {"shift", "embed.a", "embed.b", "blocks.0.w", "blocks.1.w", "blocks.1.bias", "head.w"})
      all.emplace_back(name, at::ones({64}).requires_grad_());
    return all;
  };
  ShardLayout layout{.min_unit = 1 << 20, .modules = {"embed", "blocks.0", "blocks.1", "head"}};
  const auto units = [&](const std::vector<std::string>& targets) {
    layout.targets = targets;
    std::vector<std::pair<std::string, bool>> found;
    const Shards alone(weights(), layout), second(dtk::planner::planned_group(1, 2), weights(), layout);
    for (const ParameterUnit& unit : alone.units()) found.emplace_back(unit.label, unit.is_target);
    REQUIRE(second.units().size() == found.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK(second.units()[i].label == found[i].first);
    return found;
  };
  using Units = std::vector<std::pair<std::string, bool>>;
  CHECK(units({"*"}) == Units{{"shift", false}, {"embed.a and 5 more", true}});
  CHECK(units({"blocks"}) ==
        Units{{"shift and 2 more", false}, {"blocks.0.w and 2 more", true}, {"head.w", false}});
  CHECK(units({"blocks.1", "head"}) == Units{{"shift and 3 more", false}, {"blocks.1.w and 2 more", true}});
  CHECK(units({}) == Units{{"shift and 6 more", false}});
  CHECK_THROWS_WITH(
      units({"block.*"}),
      Equals("policies.shard.targets: \"block.*\" matches no module of this model; near: blocks, "
             "blocks.0, blocks.1"));
}

TEST_CASE("shards: undivided or alone, all is the rank's own") {
  ShardLayout whole = kLayout;
  whole.divides = false;
  const Shards two = shards_of(1, 2, whole);
  const NamedTensors all = abc();
  Shards alone(all, kLayout);
  for (const Shards* const one : {&two, static_cast<const Shards*>(&alone)}) {
    CHECK_FALSE(one->divides());
    CHECK(one->own()[1].second.sizes() == at::IntArrayRef({200}));
    CHECK(one->own_part(1).elements == 200);
  }
  CHECK(alone.own()[1].second.is_same(all[2].second));
  CHECK(alone.ranks() == 1);
  alone.gather();
  CHECK(alone.collectives() == nullptr);
}

TEST_CASE("shards: the parts whose norms are taken apart are the same at any number of ranks") {
  ShardLayout twelve = kLayout;
  twelve.norm_parts = 12;
  Shards alone(abc(), twelve);
  std::map<int64_t, std::pair<std::string, int64_t>> whole;  // by index: name and begin in the parameter
  for (const auto& [parameter, part, index] : alone.own_norm_parts())
    whole[index] = {alone.parameters()[parameter].first, part.begin};
  // Of a 2 cells, of b 4, of c 1.
  REQUIRE(alone.norm_parts() == 7);
  REQUIRE(whole.size() == 7);
  for (const int ranks : {2, 3, 4, 6, 12}) {
    std::map<int64_t, std::pair<std::string, int64_t>> found;
    for (int rank = 0; rank < ranks; ++rank) {
      const Shards shards = shards_of(rank, ranks, twelve);
      CHECK(shards.norm_parts() == 7);
      for (const auto& [parameter, part, index] : shards.own_norm_parts()) {
        CHECK(found.count(index) == 0);
        found[index] = {shards.parameters()[parameter].first, shards.own_part(parameter).begin + part.begin};
      }
    }
    CHECK(found == whole);
  }
  CHECK_THROWS_AS(shards_of(0, 5, twelve), std::invalid_argument);
}

TEST_CASE("shards: gathering takes no bytes, sends the own part, and leaves it as it is") {
  const CountingAllocatorGuard counting;
  Shards shards = shards_of(1, 2);
  {
    const at::NoGradGuard no_grad;
    shards.own()[1].second.fill_(3);  // 136 elements of b
  }
  cpu_accounts().reset_phases("step");
  const int64_t before = cpu_accounts().live_bytes();
  shards.gather();
  CHECK(cpu_accounts().phases().back().peak.bytes == before);
  CHECK(cpu_accounts().live_bytes() == before);
  CHECK(shards.collectives()->sent() == TrafficByCollective{{"broadcast", {3 * 64 * 4, 1}}});
  // The planned group gives nothing: what is of others stays.
  const at::Tensor& b = shards.parameters()[1].second;
  CHECK(b.detach().narrow(0, 64, 136).eq(3).all().item<bool>());
  CHECK(b.detach().narrow(0, 0, 64).eq(1).all().item<bool>());
}

TEST_CASE("shards: a rank that writes is given each rank's part after the other, the others send their own") {
  const Shards leader = shards_of(0, 2), other = shards_of(1, 2);
  std::vector<int64_t> taken;
  const auto take = [&](const at::Tensor& part) { taken.push_back(part.numel()); };
  leader.each_part(1, leader.own()[1].second, take);
  CHECK(taken == std::vector<int64_t>{64, 136});
  CHECK(leader.collectives()->sent().empty());
  taken.clear();
  other.each_part(1, other.own()[1].second, take);
  CHECK(taken == std::vector<int64_t>{64, 136});
  CHECK(other.collectives()->sent().empty());
  other.give_part(other.own()[1].second, 0);
  CHECK(other.collectives()->sent() == TrafficByCollective{{"send", {136 * 4, 1}}});
  other.give_part(other.own()[0].second, 0);  // of which it has nothing
  CHECK(other.collectives()->sent().at("send").messages == 1);
}

TEST_CASE("shard policy: an average of the own parts alone, gathered for sampling and put back") {
  const CountingAllocatorGuard counting;
  const NamedTensors all = abc();
  const auto ema_bytes = [&](Shards* shards) {
    Seam seam;
    PolicySet policies(only_shard_and_ema(), {at::kCPU, all, {}, true, shards}, seam);
    return cpu_accounts().live().of(Category::ema);
  };
  CHECK(ema_bytes(nullptr) == 310 * 4);
  Shards shards(dtk::planner::planned_group(1, 2), all, kLayout);
  CHECK(ema_bytes(&shards) == 136 * 4);

  Seam seam;
  PolicySet policies(only_shard_and_ema(), {at::kCPU, all, {}, true, &shards}, seam);
  const at::Tensor own = shards.own()[1].second.detach();
  policies.before_step();
  own.fill_(2);
  policies.after_step();
  const Traffic once{3 * 64 * 4, 1};
  CHECK(shards.collectives()->sent().at("broadcast") == once);  // the weights come back
  {
    const auto exchange = policies.sampling_weights();
    CHECK(own.ne(2).all().item<bool>());
    CHECK(shards.collectives()->sent().at("broadcast").messages == 2);
  }
  CHECK(own.eq(2).all().item<bool>());
  CHECK(shards.collectives()->sent().at("broadcast").messages == 3);
  CHECK(policies.list().back()->state().of_own_parts);
}

TEST_CASE("shard policy: where one rank trains alone it is no policy, and asked for an error") {
  PolicyOptions options = only_shard_and_ema();
  const NamedTensors all = abc();
  Seam seam;
  {
    Seam other;
    const PolicySet policies(options, {at::kCPU, all, {}}, other);
    for (const PolicyReport& report : policies.reports()) CHECK(report.policy != "shard");
  }
  options.shard.enabled = Enabled::on;
  CHECK_THROWS_WITH(
      PolicySet(options, {at::kCPU, all, {}}, seam),
      Equals(
          "policies.shard.enabled = true has no effect where one rank trains alone; start several ranks, or "
          "leave it at \"default\""));
  Shards shards(dtk::planner::planned_group(0, 2), all, kLayout);
  const PolicySet policies(options, {at::kCPU, all, {}, true, &shards}, seam);
  const PolicyReport report = policies.reports()[3];
  CHECK(report.policy == "shard");
  CHECK(report.active);
  CHECK(report.reason ==
        "rank 0 of 2 updates 174 of 310 parameters, and has moments, sums of gradients and averages of these "
        "alone");
}

TEST_CASE("shard policy: it and what was laid out must not contradict each other") {
  const NamedTensors all = abc();
  ShardLayout whole = kLayout;
  whole.divides = false;
  Shards divided(dtk::planner::planned_group(0, 2), all, kLayout);
  Shards undivided(dtk::planner::planned_group(0, 2), all, whole);
  PolicyOptions options = only_shard_and_ema();
  Seam seam;
  CHECK_THROWS_WITH(
      PolicySet(options, {at::kCPU, all, {}, true, &undivided}, seam),
      Equals("policies.shard.enabled is not false, and Subject::shards divides nothing; lay them "
             "out with divides = true"));
  options.shard.enabled = Enabled::off;
  CHECK_THROWS_WITH(PolicySet(options, {at::kCPU, all, {}, true, &divided}, seam),
                    Equals("policies.shard.enabled = false, and Subject::shards divides the parameters; lay "
                           "them out with divides = false"));
  const PolicySet policies(options, {at::kCPU, all, {}, true, &undivided}, seam);
  CHECK(policies.reports()[3].reason == "switched off: policies.shard.enabled = false");
}

TEST_CASE("shards: while a model is made, one unit of divided weights is whole") {
  const CountingAllocatorGuard counting;
  constexpr int64_t kWeights = 8, kUnit = 65'536;  // bytes of one
  const auto laid_out = [&](c10::Device device) {
    NamedTensors all;
    for (int64_t i = 0; i < kWeights; ++i)
      all.emplace_back("layers." + std::to_string(i) + ".weight",
                       at::empty({128, 128}, device).requires_grad_());
    return all;
  };
  ShardLayout layout{.min_unit = kUnit, .level = ShardLevel::parameters};
  for (int64_t i = 0; i < kWeights; ++i) layout.modules.push_back("layers." + std::to_string(i));
  const auto peak_of = [&](const auto& make) {
    cpu_accounts().reset_phases("build");
    const int64_t before = cpu_accounts().live_bytes();
    make();
    return cpu_accounts().phases().back().peak.bytes - before;
  };
  // Made at once: all of them, and the unit that the first moves into.
  CHECK(peak_of([&] {
          const Shards shards(dtk::planner::planned_group(1, 4), laid_out(at::kCPU), layout);
        }) == (kWeights + 1) * kUnit);
  CHECK(peak_of([&] {
          const int64_t before = cpu_accounts().live_bytes();
          Shards shards(dtk::planner::planned_group(1, 4), laid_out(at::kMeta), layout);
          NamedTensors model;
          for (const auto& [name, shape] : laid_out(at::kMeta)) {
            const at::Tensor weight = at::full({128, 128}, 3.0).requires_grad_();
            model.emplace_back(name, weight);
            shards.place(name, weight);
            shards.place(name, weight);
          }
          CHECK(shards.own()[kWeights - 1].second.detach().eq(3).all().item<bool>());
          CHECK(cpu_accounts().live_bytes() - before == kWeights * kUnit / 4);
        }) ==
        2 * kUnit + (kWeights - 1) * kUnit / 4);  // the last one as it is made, and in its unit's storage
  Shards shards(dtk::planner::planned_group(1, 4), laid_out(at::kMeta), layout);
  CHECK_THROWS_AS(shards.place("layers.0.weight", at::ones({2})), std::invalid_argument);
  shards.place("layers.0.weight", at::ones({128, 128}).requires_grad_());
  CHECK_THROWS_AS(shards.place("layers.0.weight", at::ones({128, 128})), std::invalid_argument);
  shards.place("no.weight", at::ones({2}));
}
