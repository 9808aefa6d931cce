// A LibTorch program of its own under the memory policies: a small residual network with one attention layer
// learns which quarter of an image is bright. It trains three times, with more policies each time, and prints
// the peak of each.
#include <ATen/ATen.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/step_meter.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <functional>
#include <iostream>
#include <string>
#include <vector>

namespace nn = torch::nn;

constexpr int64_t kBatch = 32, kSide = 16, kChannels = 32, kHeads = 2, kSteps = 10;

nn::Conv2d conv3x3(int64_t from, int64_t to) {
  return nn::Conv2d(nn::Conv2dOptions(from, to, 3).padding(1));
}

struct ResidualImpl : nn::Module {
  nn::GroupNorm norm = register_module("norm", nn::GroupNorm(nn::GroupNormOptions(8, kChannels)));
  nn::Conv2d first = register_module("first", conv3x3(kChannels, kChannels));
  nn::Conv2d second = register_module("second", conv3x3(kChannels, kChannels));

  at::Tensor forward(at::Tensor x) { return x + second(at::silu(first(at::silu(norm(x))))); }
};
TORCH_MODULE(Residual);

struct Net : nn::Module {
  nn::Conv2d stem = register_module("stem", conv3x3(1, kChannels));
  nn::Linear qkv = register_module("qkv", nn::Linear(kChannels, 3 * kChannels));
  nn::Linear out = register_module("out", nn::Linear(kChannels, kChannels));
  nn::Linear head = register_module("head", nn::Linear(4 * kChannels, 4));
  std::vector<std::function<at::Tensor(at::Tensor)>> blocks;
  std::vector<std::string> paths;
  dtk::policies::Seam seam;

  Net() {
    for (const char* name : {"block0", "block1"}) add_residual(name);
    add([this](at::Tensor x) { return attend(x); });
    for (const char* name : {"block3", "block4"}) add_residual(name);
  }

  void add_residual(const char* name) {
    Residual block;
    register_module(name, block);
    add(block);
  }

  void add(std::function<at::Tensor(at::Tensor)> block) {
    paths.push_back("blocks." + std::to_string(blocks.size()));
    blocks.push_back(std::move(block));
  }

  at::Tensor attend(const at::Tensor& x) {
    const at::Tensor tokens = x.flatten(2).transpose(1, 2);  // (N, T, C)
    const int64_t N = tokens.size(0), T = tokens.size(1);
    const auto parts = qkv(tokens).reshape({N, T, 3, kHeads, kChannels / kHeads}).permute({2, 0, 3, 1, 4});
    const at::Tensor mixed = seam.attention(parts[0], parts[1], parts[2], {});
    return x + out(mixed.transpose(1, 2).flatten(2)).transpose(1, 2).reshape_as(x);
  }

  at::Tensor forward(at::Tensor x) {
    x = stem(x);
    for (size_t i = 0; i < blocks.size(); ++i) x = seam.module(paths[i], blocks[i], std::move(x));
    return head(at::adaptive_avg_pool2d(x, {2, 2}).flatten(1));
  }
};

struct Batch {
  at::Tensor images, labels;
};

Batch make_batch() {
  Batch batch{at::rand({kBatch, 1, kSide, kSide}), at::randint(4, {kBatch}, at::kLong)};
  constexpr int64_t half = kSide / 2;
  for (int64_t n = 0; n < kBatch; ++n) {
    const int64_t quarter = batch.labels[n].item<int64_t>();
    batch.images[n][0].narrow(0, quarter / 2 * half, half).narrow(1, quarter % 2 * half, half).add_(0.5);
  }
  return batch;
}

void report(const dtk::policies::PolicySet& policies) {
  for (const auto& one : policies.reports()) {
    std::cout << "  " << one.policy << (one.active ? " on: " : " off: ") << one.reason << "\n";
  }
}

void train(const dtk::policies::PolicyOptions& options) {
  at::manual_seed(1);
  Net net;
  dtk::policies::PolicySet policies(options, {at::kCPU, net.named_parameters().pairs(), net.paths}, net.seam);
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(1e-3));
  for (int64_t step = 1; step <= kSteps; ++step) {
    const Batch batch = make_batch();
    auto scope = policies.forward_scope();
    at::Tensor loss = at::cross_entropy_loss(net.forward(batch.images), batch.labels);
    scope.reset();
    loss.backward();
    policies.step(optimizer);
    optimizer.zero_grad();
    if (step == 1 || step == kSteps)
      std::cout << "  step " << step << ": loss " << loss.item<float>() << "\n";
  }
  report(policies);
}

// Trains and returns the bytes that were alive at the highest moment.
int64_t peak_of(const char* title, const dtk::policies::PolicyOptions& options) {
  const dtk::policies::StepMeter meter;
  std::cout << title << "\n";
  train(options);
  std::cout << "  peak: " << meter.peak_bytes() << " bytes\n";
  return meter.peak_bytes();
}

int main() {
  const auto none = dtk::policies::PolicyOptions::all_off();
  auto attention = none;
  attention.attention = {};
  const int64_t without = peak_of("Without policies", none);
  const int64_t fused = peak_of("Attention's default only", attention);
  const int64_t with = peak_of("All defaults", {});
  std::cout << "saved: " << without - with << " bytes of " << without << " (" << without - fused
            << " by attention alone)\n";
}
