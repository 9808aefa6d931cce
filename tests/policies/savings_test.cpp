// What each policy saves on a DiT, alone, in pairs and all together: exact bytes, from the rules by which
// operators keep tensors for backward.
//
// Bytes that a block keeps, with N samples, T tokens, D hidden, H heads:
//   per token, fp32: 80 D + 16 (two norms) and 4 H (fused: log-sum-exp) or 4 H T (materialised: softmax)
//   per token, bf16: 48 D + 16 and 4 H or 2 H T (on the CPU softmax stays bf16)
//   per sample: 36 D or 18 D (modulation); per step in bf16: the casts of its 18 D² weights, 36 D²
//   checkpointed: nothing; the segment keeps its input, 4 D per token, in fp32
// The EMA: 4 bytes a trainable parameter on the device, or in host memory with three slots for copies.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/models/dit.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <bit>

#include "support/catch.h"
#include "support/delayed_copy_engine.h"
#include "support/small_dit.h"

using namespace dtk::policies;
using dtk::models::Dit;

namespace {

constexpr std::chrono::microseconds kDelay(50);
constexpr int64_t T = 16, D = 32, H = 2, kDepth = 3;

struct Combination {
  bool bf16, fused, checkpointed;
  bool host_ema = false;  // else on the training device
};

PolicyOptions options_of(const Combination& on) {
  const auto state = [](bool is_on) { return is_on ? Enabled::on : Enabled::off; };
  PolicyOptions options;
  options.precision.enabled = state(on.bf16);
  options.attention.enabled = state(on.fused);
  options.checkpoint.enabled = state(on.checkpointed);
  options.ema.device = on.host_ema ? "cpu" : "same";
  return options;
}

// Without c, which every block shares and the first is reported to keep.
int64_t kept_by_block(const Combination& on, int64_t N) {
  if (on.checkpointed) return 0;
  const int64_t attention = on.fused ? 4 * H : (on.bf16 ? 2 : 4) * H * T;
  const int64_t token = (on.bf16 ? 48 : 80) * D + 16 + attention;
  return N * (T * token + (on.bf16 ? 18 : 36) * D);
}

int64_t casts_of_block(const Combination& on) {
  return on.bf16 && !on.checkpointed ? 36 * D * D : 0;
}

Dit make_dit() {
  return dtk::test::small_dit(/*depth=*/kDepth, /*hidden=*/D, /*patch=*/2, /*mlp_dropout=*/0.0);
}

struct Outcome {
  std::map<std::string, int64_t> saved, casts;  // after forward, by module path
  int64_t peak = 0;                             // of the device: model, EMA, forward and backward
  int64_t host = 0;                             // of the host
  std::vector<at::Tensor> gradients;
};

Outcome train(const Combination& on, int64_t N = 3) {
  const int64_t before = cpu_accounts().live_bytes(), host_before = host_accounts().live_bytes();
  Dit dit = make_dit();
  Seam seam;
  // The CPU stands for the training device, so the host's copy of the weights needs an engine.
  PolicySet policies(options_of(on), {at::kCPU, dit.parameters(), dit.paths()}, seam,
                     on.host_ema ? std::make_unique<dtk::test::DelayedCopyEngine>(kDelay) : nullptr);
  dit.seam.run = seam.run;
  dit.seam.attention = seam.attention;
  at::manual_seed(5);
  const at::Tensor x = at::randn({N, 1, 8, 8}), t = at::rand({N}) * 1000, y = at::arange(N) % 4;
  for (const at::Tensor& tensor : {x, t, y}) claim(tensor, Category::data, "batch");
  Outcome outcome;
  cpu_accounts().reset_phases("step");
  {
    SavedTensorScope ledger(saved_tensor_ledger());
    at::Tensor loss;
    {
      const auto scope = policies.forward_scope();
      loss = dit.forward(x, t, y, /*training=*/true).pow(2).sum();
    }
    const auto items = cpu_accounts().live().items();
    if (items.count(Category::saved) > 0) outcome.saved = items.at(Category::saved);
    if (items.count(Category::casts) > 0) outcome.casts = items.at(Category::casts);
    torch::autograd::backward({loss}, {});
  }
  policies.before_step();
  policies.after_step();
  outcome.host = host_accounts().live_bytes() - host_before;
  outcome.peak = cpu_accounts().phases().front().peak.bytes - before;
  for (const auto& [name, parameter] : dit.parameters()) {
    if (parameter.requires_grad()) outcome.gradients.push_back(parameter.grad());
  }
  return outcome;
}

int64_t bytes_of(const std::map<std::string, int64_t>& items, const std::string& path) {
  const auto found = items.find(path);
  return found == items.end() ? 0 : found->second;
}

bool bit_equal(const Outcome& a, const Outcome& b) {
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (!at::equal(a.gradients[i], b.gradients[i])) return false;
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

TEST_CASE("the baseline is one: fp32, weights of attention kept, nothing recomputed, bit-equal to itself") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  const Combination none{false, false, false};
  const CheckpointCounts before = checkpoint_counts();
  const Outcome first = train(none), second = train(none);
  CHECK(checkpoint_counts().segments == before.segments);
  CHECK(bit_equal(first, second));
  CHECK(first.peak == second.peak);
  constexpr int64_t N = 3;
  CHECK(first.saved.at("blocks.1") == N * (T * (80 * D + 16 + 4 * H * T) + 36 * D));
}

TEST_CASE("each policy alone, each pair and all together keep exactly what the rules say") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  constexpr int64_t N = 3, c = N * 4 * D;
  for (const bool bf16 : {false, true}) {
    for (const bool fused : {false, true}) {
      for (const bool checkpointed : {false, true}) {
        const Combination on{bf16, fused, checkpointed};
        CAPTURE(bf16, fused, checkpointed);
        const Outcome outcome = train(on, N);
        for (int64_t i = 0; i < kDepth; ++i) {
          const std::string path = "blocks." + std::to_string(i);
          const int64_t shared = i == 0 && !checkpointed ? c : 0;
          CHECK(bytes_of(outcome.saved, path) == kept_by_block(on, N) + shared);
          CHECK(bytes_of(outcome.casts, path) == casts_of_block(on));
        }
        // Inputs of segments are kept outside of them: x of each block, and once c.
        const int64_t inputs = checkpointed ? kDepth * N * T * 4 * D : 0;
        const int64_t loss = N * 64 * 4;  // the input of pow
        CHECK(outcome.saved.at("") - (checkpointed ? c : 0) == inputs + loss);
      }
    }
  }
}

TEST_CASE(
    "the EMA in host memory takes 4 bytes a trainable parameter off the device, beside any other policy") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  int64_t trainable = 0, largest = 0;
  const Dit dit = make_dit();
  for (const auto& [name, parameter] : dit.parameters()) {
    if (!parameter.requires_grad()) continue;
    trainable += parameter.numel();
    largest = std::max(largest, parameter.numel());
  }
  const auto slots = 3 * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(4 * largest)));
  for (int bits = 0; bits < 8; ++bits) {
    const Combination same{(bits & 4) != 0, (bits & 2) != 0, (bits & 1) != 0, false};
    Combination host = same;
    host.host_ema = true;
    CAPTURE(same.bf16, same.fused, same.checkpointed);
    const Outcome on_device = train(same), on_host = train(host);
    CHECK(on_device.host == 0);
    CHECK(on_device.peak - on_host.peak == 4 * trainable);
    CHECK(on_host.host == 4 * trainable + slots);
    CHECK(bit_equal(on_device, on_host));
  }
}

TEST_CASE("fused attention changes gradients within rounding, bf16 numerics, checkpointing nothing") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  const Outcome none = train({false, false, false});
  const Outcome fused = train({false, true, false}), bf16 = train({true, false, false});
  CHECK(bit_equal(train({false, false, true}), none));
  CHECK(bit_equal(train({false, true, true}), fused));
  CHECK(bit_equal(train({true, false, true}), bf16));
  CHECK(bit_equal(train({true, true, true}), train({true, true, false})));
  CHECK(largest_relative_error(fused, none) < 1e-5);
  CHECK_FALSE(bit_equal(bf16, none));
  CHECK(largest_relative_error(bf16, none) < 0.05);
}

TEST_CASE("with the policy no allocation of a step is as large as attention's weights in bf16") {
  CountingAllocatorGuard counting;
  dtk::models::DitOptions options;  // one block of DiT-S/2 on 64 x 64 latents: nothing else is that large
  options.depth = 1;
  options.hidden = 384;
  options.heads = 6;
  options.patch = 2;
  options.image_size = 64;
  options.classes = 4;
  const int64_t weights = 1 * 6 * 1024 * 1024 * 2;
  const auto largest = [&](Enabled attention) {
    Dit dit(options, at::kCPU, make_generator(at::kCPU, 3));
    Seam seam;
    PolicyOptions policy_options = options_of({false, true, false});
    policy_options.attention.enabled = attention;
    PolicySet policies(policy_options, {at::kCPU, dit.parameters(), dit.paths()}, seam);
    dit.seam.run = seam.run;
    dit.seam.attention = seam.attention;
    cpu_accounts().start_event_log();
    at::Tensor loss =
        dit.forward(at::ones({1, 4, 64, 64}), at::ones({1}), at::ones({1}, at::kLong), true).pow(2).sum();
    torch::autograd::backward({loss}, {});
    int64_t bytes = 0;
    for (const MemoryEvent& event : cpu_accounts().stop_event_log()) {
      if (event.kind == MemoryEvent::Kind::birth) bytes = std::max(bytes, event.bytes);
    }
    return bytes;
  };
  CHECK(largest(Enabled::off) == 2 * weights);  // fp32
  CHECK(largest(Enabled::by_default) < weights);
}

TEST_CASE("the peak falls with each policy that removes what it consists of") {
  CountingAllocatorGuard counting;
  SavedTensorEngineGuard engine;
  constexpr int64_t N = 24;  // activations outweigh the gradients
  const Combination plain{false, false, false};
  const int64_t none = train(plain, N).peak;
  const int64_t fused = train({false, true, false}, N).peak;
  const int64_t checkpointed = train({false, false, true}, N).peak;
  const int64_t both = train({false, true, true}, N).peak;
  // All blocks' weights of attention, less their log-sum-exp, are alive at the plain peak.
  const int64_t weights = kDepth * N * T * (4 * H * T - 4 * H);
  CHECK(none - fused >= weights);
  // All blocks but one at a time, less inputs and the gradients that are there when the last one is run
  // again.
  const int64_t blocks = (kDepth - 1) * kept_by_block(plain, N) - kDepth * N * T * 4 * D;
  const int64_t gradients = kDepth * 18 * D * D * 4;
  CHECK(none - checkpointed >= blocks - gradients);
  CHECK(both < checkpointed);
  CHECK(both < fused);
}
