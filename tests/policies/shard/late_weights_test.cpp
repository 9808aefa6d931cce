// Weights that other ranks updated are on their way while the next pass begins: whoever reads them waits for
// them. In a group whose messages arrive at the last moment, when they are waited for.
#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/shards.h>

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "support/catch.h"

using namespace dtk::policies;

namespace {

constexpr int64_t kSide = 64, kMatrix = kSide * kSide * 4;  // bytes
constexpr double kArrived = 7;
int waits = 0;  // for messages
bool failing = false;

class Late final : public c10d::Work {
 public:
  explicit Late(std::vector<at::Tensor> received) : received_(std::move(received)) {}
  bool wait(std::chrono::milliseconds) override {
    ++waits;
    if (failing) throw std::runtime_error("Connection closed by peer");
    for (at::Tensor& one : received_) one.fill_(kArrived);
    return true;
  }

 private:
  std::vector<at::Tensor> received_;
};

class LateGroup final : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "late"; }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return c10::make_intrusive<Late>(options.rootRank == getRank() ? std::vector<at::Tensor>() : tensors);
  }
};

// Rank 1 of two, which updates the second half of each matrix.
struct TwoLayers {
  explicit TwoLayers(bool knows_readers, bool has_average = false) {
    for (const char* name : {"layers.0.weight", "layers.1.weight", "scale"})
      weights.emplace_back(name, at::ones({kSide, kSide}).requires_grad_());
    ShardLayout layout{.min_unit = kMatrix};
    if (knows_readers) layout.modules = paths;
    shards.emplace(c10::make_intrusive<LateGroup>(1, 2), weights, layout);
    PolicyOptions options = PolicyOptions::all_off();
    options.shard.enabled = Enabled::by_default;
    if (has_average) options.ema.enabled = Enabled::by_default;
    policies.emplace(options, Subject{at::kCPU, weights, paths, true, &*shards}, seam);
  }
  void step() {
    policies->before_step();
    policies->after_step();
  }
  // By weight: whether the half of the other rank is there; nobody reads what is on its way.
  std::vector<bool> arrived() const {
    std::vector<bool> all;
    for (const auto& [name, weight] : weights) {
      try {
        all.push_back(weight.detach().narrow(0, 0, kSide / 2).eq(kArrived).all().item<bool>());
      } catch (const c10::Error&) {
        all.push_back(false);
      }
    }
    return all;
  }
  void run(size_t module) {
    const auto fn = [this, module](const at::Tensor& in) {
      CHECK(arrived()[module]);
      return at::mm(in, weights[module].second);
    };
    seam.module(paths[module], fn, at::ones({1, kSide}));
  }

  const std::vector<std::string> paths = {"layers.0", "layers.1"};
  NamedTensors weights;
  Seam seam;
  std::optional<Shards> shards;
  std::optional<PolicySet> policies;
};

using HaveCome = std::vector<bool>;

template <class Storage>
constexpr bool kSaysWhy = requires(Storage& storage) {
  storage.clear_data_ptr_access_error_msg_();
};

}  // namespace

TEST_CASE(
    "late weights: each module waits for its own, a pass for those of no module, and no bytes are taken") {
  const CountingAllocatorGuard counting;
  TwoLayers two(/*knows_readers=*/true);
  CHECK(two.shards->gathers_late());
  cpu_accounts().reset_phases("step");
  const int64_t before = cpu_accounts().live_bytes();
  two.step();
  CHECK(cpu_accounts().phases().back().peak.bytes == before);
  CHECK(two.arrived() == HaveCome{false, false, false});
  // All are on their way: one message a unit.
  CHECK(two.shards->collectives()->sent() == TrafficByCollective{{"broadcast", {3 * kMatrix / 2, 3}}});
  {
    const auto scope = two.policies->forward_scope();
    CHECK(two.arrived() == HaveCome{false, false, true});
    two.run(0);
    CHECK(two.arrived() == HaveCome{true, false, true});
    two.run(1);
  }
  CHECK(two.arrived() == HaveCome{true, true, true});
  CHECK(two.shards->collectives()->sent().at("broadcast").messages == 3);
}

TEST_CASE(
    "late weights: have come before the next step, before an average takes their place, and when asked for") {
  for (const int reader : {0, 1, 2}) {
    TwoLayers two(/*knows_readers=*/true);
    two.step();
    REQUIRE(two.arrived() == HaveCome{false, false, false});
    if (reader == 0) two.policies->before_step();
    if (reader == 1) two.policies->sampling_weights();
    if (reader == 2) two.shards->settle();
    CHECK(two.arrived() == HaveCome{true, true, true});
  }
}

TEST_CASE("late weights: where nobody says who reads them, all have come behind the step") {
  TwoLayers two(/*knows_readers=*/false);
  CHECK_FALSE(two.shards->gathers_late());
  two.step();
  CHECK(two.arrived() == HaveCome{true, true, true});
}

TEST_CASE(
    "late weights: a module that is used by hand waits for its own, and a second gathering for the first") {
  TwoLayers two(/*knows_readers=*/true);
  two.step();
  { const Shards::Use use(*two.shards, "layers.1"); }
  CHECK(two.arrived() == HaveCome{false, true, false});
  // The rank's own half stays what it is.
  CHECK(two.weights[1].second.detach().narrow(0, kSide / 2, kSide / 2).eq(1).all().item<bool>());
  const int before = waits;
  two.shards->begin_gather();
  CHECK(waits == before + 4);  // two units of two parts
  CHECK(two.arrived() == HaveCome{false, false, false});
}

TEST_CASE(
    "late weights: who reads those on their way outside of their module is told so; own parts are there") {
  if (!kSaysWhy<c10::StorageImpl>) return;  // LibTorch before 2.15: they are read as they were
  TwoLayers two(/*knows_readers=*/true);
  two.step();
  CHECK_THROWS_WITH(
      two.weights[0].second.detach().sum(),
      Catch::Contains(
          "policies.shard: layers.0.weight are on their way behind a step: they are read outside of the "
          "module that they lie in; read them in it, or leave it out of policies.shard.targets"));
  CHECK(two.shards->own()[0].second.detach().eq(1).all().item<bool>());
  two.shards->settle();
  CHECK(two.weights[0].second.detach().sum().item<double>() == kSide * kSide / 2 * (1 + kArrived));
  // The own part is a part of the weight again, whoever changes it.
  {
    const at::NoGradGuard no_grad;
    two.shards->own()[0].second.fill_(2);
  }
  CHECK(two.weights[0].second.detach().sum().item<double>() == kSide * kSide / 2 * (2 + kArrived));
}

TEST_CASE("late weights: have come where the shards go, and not where the group has failed") {
  for (const bool fails : {false, true}) {
    TwoLayers two(/*knows_readers=*/true);
    two.step();
    if (fails) {
      failing = true;
      CHECK_THROWS_AS(two.shards->settle(), CollectiveError);
      failing = false;
      two.shards->settle();
    }
    two.policies.reset();
    two.seam = {};
    two.shards.reset();
    CHECK(two.arrived() == HaveCome{!fails, !fails, !fails});
  }
}

TEST_CASE("late weights: a backward pass from before a step is refused") {
  TwoLayers two(/*knows_readers=*/true);
  at::Tensor loss;
  {
    const auto scope = two.policies->forward_scope();
    loss = at::mm(two.weights[0].second, two.weights[1].second).sum();
  }
  two.step();
  CHECK_THROWS_WITH(loss.backward(), Catch::Contains("modified by an inplace operation"));
}
