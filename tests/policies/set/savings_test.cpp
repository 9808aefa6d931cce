// What each policy saves on a DiT, alone, in pairs and all together: exact bytes, from the rules by which
// operators keep tensors for backward.
//
// Bytes that a block keeps, with N samples, T tokens, D hidden, H heads:
//   per token, fp32: 80 D + 16 (two norms) and 4 H (fused: log-sum-exp) or 4 H T (materialised: softmax)
//   per token, bf16: 48 D + 16 and 4 H, or 2 H T on the CPU, where softmax stays bf16, or 6 H T on CUDA
//   fused operators keep 8 D less per token, and per sample 8 D (fp32) or 4 D (bf16)
//   per sample: 36 D or 18 D (modulation); per step in bf16: the casts of its 18 D² weights, 36 D²
//   checkpointed: nothing; the segment keeps its input, 4 D per token, in fp32
// The EMA: 4 bytes a trainable parameter on the device, or in host memory with three slots for copies.
//
// Tests tagged [device] run on any device. The ledger, which knows the module path of every byte, sees the
// CPU only.
#include <ATen/ATen.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>
#include <bit>

#include "support/catch.h"
#include "support/device/test_device.h"
#include "support/policies/dit_steps.h"
#include "support/same_bits.h"

using namespace dtk::policies;
using namespace dtk::test;

namespace {

int64_t bytes_of(const std::map<std::string, int64_t>& items, const std::string& path) {
  const auto found = items.find(path);
  return found == items.end() ? 0 : found->second;
}

bool bit_equal(const Outcome& a, const Outcome& b) {
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (!same_bits(a.gradients[i], b.gradients[i])) return false;
  }
  return true;
}

double largest_relative_error(const Outcome& a, const Outcome& b) {
  double largest = 0;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    const at::Tensor difference = (a.gradients[i] - b.gradients[i]).norm();
    largest = std::max(largest, (difference / b.gradients[i].norm()).item<double>());
  }
  return largest;
}

}  // namespace

TEST_CASE("the baseline is one: fp32, weights of attention kept, nothing recomputed, bit-equal to itself",
          "[device]") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  const Combination none{false, false, false};
  warm_up(none);
  const CheckpointCounts before = checkpoint_counts();
  const Outcome first = train(none), second = train(none);
  CHECK(checkpoint_counts().segments == before.segments);
  CHECK_VALUES(bit_equal(first, second));
  CHECK(first.peak == second.peak);
  CHECK(first.kept == second.kept);
  constexpr int64_t N = 3;
  if (on_cpu()) CHECK(first.saved.at("blocks.1") == N * (T * (80 * D + 16 + 4 * H * T) + 36 * D));
}

TEST_CASE("each policy alone, each pair and all together keep exactly what the rules say") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  constexpr int64_t N = 3, c = N * 4 * D;
  for (const Combination& on : all_combinations()) {
    CAPTURE(on.bf16, on.fused, on.checkpointed, on.fused_operators);
    const Outcome outcome = train(on, N);
    for (int64_t i = 0; i < kDepth; ++i) {
      const std::string path = "blocks." + std::to_string(i);
      const int64_t shared = i == 0 ? c : 0;  // of all blocks; the first to keep it is its owner
      CHECK(bytes_of(outcome.saved, path) == kept_by_block(on, N) + input_of_block(on, N) + shared);
      CHECK(bytes_of(outcome.casts, path) == casts_of_block(on));
    }
    CHECK(outcome.saved.at("") == N * 64 * 4);  // the loss: the input of pow
  }
}

TEST_CASE("one more block keeps what the rules say and nothing else, under any policies", "[device]") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  constexpr int64_t N = 3;
  for (const Combination& on : all_combinations()) {
    CAPTURE(on.bf16, on.fused, on.checkpointed, on.fused_operators);
    warm_up(on);
    const int64_t block = train(on, N, kDepth + 1).kept - train(on, N, kDepth).kept;
    const int64_t rule = kept_by_block(on, N) + casts_of_block(on) + input_of_block(on, N);
    const bool exact = on_cpu() || !on.fused || on.checkpointed;
    CHECK(block >= rule);
    CHECK(block <= rule + (exact ? 0 : kKernelState));
  }
}

TEST_CASE(
    "the EMA in host memory takes 4 bytes a trainable parameter off the device, beside any other policy",
    "[device]") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  int64_t trainable = 0, largest = 0;
  {
    const dtk::models::Dit dit = make_dit();
    for (const auto& [name, parameter] : dit.parameters()) {
      if (!parameter.requires_grad()) continue;
      trainable += parameter.numel();
      largest = std::max(largest, parameter.numel());
    }
  }
  // A device's slots are pinned, by an allocator that the ledger does not see; the simulated one's it does.
  const auto slots = on_cpu() || simulated()
                         ? 3 * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(4 * largest)))
                         : 0;
  for (const Combination& same : combinations()) {
    Combination host = same;
    host.host_ema = true;
    CAPTURE(same.bf16, same.fused, same.checkpointed);
    warm_up(same);
    const Outcome on_device = train(same), on_host = train(host);
    CHECK(on_device.host == 0);
    CHECK(on_device.peak - on_host.peak == 4 * trainable);
    CHECK(on_host.host == 4 * trainable + slots);
    CHECK(on_device.kept == on_host.kept);
    CHECK_VALUES(bit_equal(on_device, on_host));
  }
}

TEST_CASE("fused attention changes gradients within rounding, bf16 numerics, checkpointing nothing",
          "[device]") {
  NEEDS_VALUES("it compares gradients");
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  const Outcome none = train({false, false, false});
  const Outcome fused = train({false, true, false}), bf16 = train({true, false, false});
  CHECK(bit_equal(train({false, false, true}), none));
  CHECK(bit_equal(train({false, true, true}), fused));
  CHECK(bit_equal(train({true, false, true}), bf16));
  CHECK(bit_equal(train({true, true, true}), train({true, true, false})));
  for (const bool in_bf16 : {false, true}) {
    if (!on_cpu()) break;  // without kernels of fused operators
    Combination on{in_bf16, true, false};
    on.fused_operators = true;
    const Outcome kept = train(on);
    on.checkpointed = true;
    CHECK(bit_equal(train(on), kept));
    CHECK_FALSE(bit_equal(kept, in_bf16 ? train({true, true, false}) : fused));
    CHECK(largest_relative_error(kept, none) < (in_bf16 ? 0.02 : 1e-5));
  }
  // Fused kernels of a device may multiply fp32 in three passes of a shorter format.
  CHECK(largest_relative_error(fused, none) < (on_cpu() ? 1e-5 : 1e-3));
  CHECK_FALSE(bit_equal(bf16, none));
  CHECK(largest_relative_error(bf16, none) < 0.02);
}
