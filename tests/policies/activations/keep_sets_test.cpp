// The sets of results that a DiT's blocks may keep by one word: bytes of a token to the byte, gradients bit
// for bit.
#include <ATen/ATen.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/policy_set.h>

#include <string>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/error_text.h"
#include "support/policies/dit_steps.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using namespace dtk::test;

namespace {

struct Set {
  KeepWord word;
  int64_t results;  // multiples of D numbers a token, of the products' type
  bool attention;   // with attention's two: its result is one of `results`, the other 4 H bytes
};
constexpr Set kSets[] = {{KeepWord::elementwise, 3 + 1 + 1 + 4 + 1, true},
                         {KeepWord::attention, 1 + 1 + 1, true},
                         {KeepWord::gates, 1 + 1, false},
                         {KeepWord::fc2, 1, false},
                         {KeepWord::block, 0, false}};

std::vector<Combination> numerics() {
  std::vector<Combination> all;
  for (const bool bf16 : {false, true}) {
    for (const bool operators : {false, true}) {
      if (operators && !on_cpu() && !simulated()) continue;
      Combination on{bf16, /*fused=*/true, /*checkpointed=*/true};
      on.fused_operators = operators;
      all.push_back(on);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("keep sets: a block keeps its input and the set, to the byte", "[device]") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  constexpr int64_t N = 3;
  for (Combination on : numerics()) {
    int64_t last = 0;
    for (const Set& set : kSets) {
      on.keep = set.word;
      CAPTURE(text_of(set.word), on.bf16, on.fused_operators);
      warm_up(on);
      const int64_t block = train(on, N, kDepth + 1).kept - train(on, N, kDepth).kept;
      const int64_t token = 4 * D + set.results * (on.bf16 ? 2 : 4) * D + (set.attention ? 4 * H : 0);
      CHECK(block >= N * T * token);
      CHECK(block <= N * T * token + (on_cpu() || !set.attention ? 0 : kKernelState));
      CHECK((last == 0 || block < last));  // each set keeps less than the one before
      last = block;
    }
    on.checkpointed = false;
    CHECK(train(on, N, kDepth + 1).kept - train(on, N, kDepth).kept > N * T * 24 * D);
  }
}

TEST_CASE("keep sets: gradients are those of a block that keeps everything, bit for bit") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  for (Combination on : numerics()) {
    Combination kept = on;
    kept.checkpointed = false;
    const Outcome all = train(kept);
    for (const Set& set : kSets) {
      on.keep = set.word;
      CAPTURE(text_of(set.word), on.bf16, on.fused_operators);
      const CheckpointCounts before = checkpoint_counts();
      const Outcome again = train(on);
      CHECK(checkpoint_counts().segments == before.segments + kDepth);
      REQUIRE(again.gradients.size() == all.gradients.size());
      for (size_t i = 0; i < all.gradients.size(); ++i)
        CHECK(same_bits(again.gradients[i], all.gradients[i]));
    }
  }
}

TEST_CASE(
    "keep sets: for some of the blocks, beside names and offload; one that the model has not is refused") {
  const at::Tensor weight = at::ones({2, 2}).set_requires_grad(true);
  const std::vector<std::string> paths = {"blocks.0", "blocks.1"};
  const auto policy = [&](std::vector<std::string> keep) {
    PolicyOptions options = PolicyOptions::all_off();
    options.checkpoint.enabled = Enabled::on;
    options.checkpoint.targets = {"blocks.*"};
    options.checkpoint.keep = std::move(keep);
    options.checkpoint.offload_min_bytes = {1};
    Seam seam;
    PolicySet set(options, {at::kCPU, {{"weight", weight}}, paths}, seam);
    const ModuleFn module = [&](Tensors&& in) {
      return Tensors{seam.keep("fc2_out", in[0].matmul(weight)).sigmoid().sin()};
    };
    const auto scope = set.forward_scope();
    at::Tensor x = at::ones({2, 2});
    for (const std::string& path : paths) x = seam.run(path, module, Tensors{x}).front();
    set.before_step();
  };
  policy({"fc2"});
  policy({"blocks.0: fc2", "offload"});
  CHECK(error_text<PolicyError>([&] { policy({"gates"}); }) ==
        "policies.checkpoint.keep: \"proj_out\" is no name of a result in the segments' forward passes; "
        "near: fc2_out");
  CHECK(error_text<PolicyError>([&] { policy({"block"}); }) ==
        "policies.checkpoint.keep: \"block\" is not the name of a result; write it alone: "
        "policies.checkpoint.keep = "
        "\"block\"");
}
