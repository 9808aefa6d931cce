// One training step of a small DiT under any combination of the policies, on the test device, with its bytes.
#pragma once
#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/device/delayed_staging_copies.h"
#include "support/device/test_device.h"
#include "support/policies/small_dit.h"

namespace dtk::test {

// Tokens, hidden size, heads. Fused kernels on CUDA pad rows of T floats to 32: nothing to pad here.
constexpr int64_t T = 64, D = 32, H = 2, kDepth = 3;

/// What a fused kernel on a device may keep besides the rules: the random state of its dropout.
constexpr int64_t kKernelState = 64;

struct Combination {
  bool bf16, fused, checkpointed;
  bool host_ema = false;         // else on the training device
  bool fused_operators = false;  // beside attention's, which is `fused`
  policies::KeepWord keep = policies::KeepWord::block;
};

/// All eight of the first three.
inline std::vector<Combination> combinations() {
  std::vector<Combination> all;
  for (int bits = 0; bits < 8; ++bits) all.push_back({(bits & 4) != 0, (bits & 2) != 0, (bits & 1) != 0});
  return all;
}

/// All sixteen of them and fused operators, which have kernels on the CPU and, as all have, where nothing is
/// computed.
inline std::vector<Combination> all_combinations() {
  std::vector<Combination> all = combinations();
  if (!on_cpu() && !simulated()) return all;
  for (Combination on : combinations()) {
    on.fused_operators = true;
    all.push_back(on);
  }
  return all;
}

inline policies::PolicyOptions options_of(const Combination& on) {
  using policies::Enabled;
  const auto state = [](bool is_on) { return is_on ? Enabled::on : Enabled::off; };
  policies::PolicyOptions options;
  options.checkpoint.targets = {"blocks.*"};
  options.precision.fp32 = {"final_layer"};
  options.precision.enabled = state(on.bf16);
  options.attention.enabled = state(on.fused);
  options.checkpoint.enabled = state(on.checkpointed);
  options.checkpoint.keep = on.keep;
  options.fusion.enabled = state(on.fused_operators);
  options.fusion.cuda = on.fused_operators;
  options.ema.device = on.host_ema ? policies::EmaDevice::cpu : policies::EmaDevice::same;
  return options;
}

/// Bytes that a block keeps for backward, without its casts of weights and without c, which every block
/// shares.
inline int64_t kept_by_block(const Combination& on, int64_t N) {
  if (on.checkpointed) return 0;
  // Softmax in bf16: as it is on the CPU; in fp32 on CUDA, with a copy in bf16 for the product that follows.
  const int64_t weights = on.bf16 ? (on_cpu() ? 2 : 6) : 4;
  const int64_t attention = on.fused ? 4 * H : weights * H * T;
  // Fused operators keep x, qkv, and the results of attention, proj, fc1 and fc2: without the two normalised
  // tensors and their statistics, the sum between the halves, which are fp32, and what qkv, fc1 and fc2 read;
  // of a sample without two times 1 + scale.
  const int64_t composed = (on.bf16 ? 48 : 80) * D + 16, fused = (on.bf16 ? 24 : 44) * D;
  const int64_t factors = on.fused_operators ? (on.bf16 ? 4 : 8) * D : 0;
  const int64_t token = (on.fused_operators ? fused : composed) + attention;
  return N * (T * token + (on.bf16 ? 18 : 36) * D - factors);
}

inline int64_t casts_of_block(const Combination& on) {
  // Of the modulation 6 D², qkv 3 D², proj D², fc1 and fc2 4 D² each; those that are recomputed are not kept.
  return on.bf16 && !on.checkpointed ? 2 * (on.fused_operators ? 6 + 1 : 6 + 3 + 1 + 4 + 4) * D * D : 0;
}

/// What a checkpointed block keeps: its input x.
inline int64_t input_of_block(const Combination& on, int64_t N) {
  return on.checkpointed ? N * T * 4 * D : 0;
}

inline models::Dit make_dit(int64_t depth = kDepth) {
  return small_dit(depth, /*hidden=*/D, /*patch=*/1, /*mlp_dropout=*/0.0, test_device());
}

struct Outcome {
  std::map<std::string, int64_t> saved, casts;  // after forward, by module path; the CPU's ledger only
  int64_t kept = 0;                             // alive after forward that was not before
  int64_t peak = 0;                             // of the device: model, EMA, forward and backward
  int64_t host = 0;                             // of the host, with policies, at the step's end
  std::vector<at::Tensor> gradients;
};

/// Bytes of the host that a policy may take: apart from the CPU that stands for a device.
inline int64_t host_bytes() {
  return on_cpu() ? policies::host_accounts().live_bytes() : policies::cpu_accounts().live_bytes();
}

/// What make_dit()'s models are trained with, (N, 1, 8, 8); owned as a batch is.
struct Batch {
  at::Tensor x, t, y;
};
inline Batch batch_of(int64_t N) {
  at::manual_seed(5);
  Batch batch{at::randn({N, 1, 8, 8}).to(test_device()), (at::rand({N}) * 1000).to(test_device()),
              (at::arange(N) % 4).to(test_device())};
  for (const at::Tensor& tensor : {batch.x, batch.t, batch.y})
    policies::claim(tensor, policies::Category::data, "batch");
  return batch;
}

/// A CountingAllocatorGuard and a SavedTensorEngineGuard must be alive.
inline Outcome train(const Combination& on, int64_t N = 3, int64_t depth = kDepth) {
  using namespace policies;
  const int64_t before = DeviceMemory::live(), host_before = host_bytes();
  models::Dit dit = make_dit(depth);
  Seam seam;
  // The CPU may stand for the training device; then the host's copy of the weights needs an engine.
  std::unique_ptr<StagingCopies> engine;
  if (on.host_ema && on_cpu()) engine = std::make_unique<DelayedStagingCopies>(std::chrono::microseconds(50));
  PolicySet policies(options_of(on), {test_device(), dit.parameters(), dit.paths()}, seam, std::move(engine));
  dit.seam.run = seam.run;
  dit.seam.attention = seam.attention;
  dit.seam.fuses = seam.fuses;
  dit.seam.keep = seam.keep;
  const auto [x, t, y] = batch_of(N);
  Outcome outcome;
  DeviceMemory::restart();
  {
    SavedTensorScope ledger(saved_tensor_ledger());
    const int64_t at_start = DeviceMemory::live();
    at::Tensor loss;
    {
      const auto scope = policies.forward_scope();
      loss = dit.forward(x, t, y, /*training=*/true).pow(2).sum();
    }
    outcome.kept = DeviceMemory::live() - at_start;
    const auto items = cpu_accounts().live().items();
    if (on_cpu() && items.count(Category::saved) > 0) outcome.saved = items.at(Category::saved);
    if (on_cpu() && items.count(Category::casts) > 0) outcome.casts = items.at(Category::casts);
    torch::autograd::backward({loss}, {});
  }
  outcome.peak = DeviceMemory::peak() - before;
  policies.before_step();
  policies.after_step();
  outcome.host = host_bytes() - host_before;
  for (const auto& [name, parameter] : dit.parameters()) {
    if (parameter.requires_grad()) outcome.gradients.push_back(parameter.grad());
  }
  return outcome;
}

/// What a device's libraries take for good at their first call, such as workspaces, is there afterwards.
inline void warm_up(const Combination& on) {
  if (!on_cpu()) train(on);
}

}  // namespace dtk::test
