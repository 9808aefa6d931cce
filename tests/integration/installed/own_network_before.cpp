// examples/own_network/main.cpp as it was before dtk: install_test counts the lines that are others there.
// Not formatted: lines that are the same in both stay so.
// clang-format off
#include <ATen/ATen.h>
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
    blocks.push_back(std::move(block));
  }

  at::Tensor attend(const at::Tensor& x) {
    const at::Tensor tokens = x.flatten(2).transpose(1, 2);  // (N, T, C)
    const int64_t N = tokens.size(0), T = tokens.size(1);
    const auto parts = qkv(tokens).reshape({N, T, 3, kHeads, kChannels / kHeads}).permute({2, 0, 3, 1, 4});
    const at::Tensor mixed = at::softmax(at::matmul(parts[0], parts[1].transpose(-2, -1)) / 4, -1).matmul(parts[2]);
    return x + out(mixed.transpose(1, 2).flatten(2)).transpose(1, 2).reshape_as(x);
  }

  at::Tensor forward(at::Tensor x) {
    x = stem(x);
    for (size_t i = 0; i < blocks.size(); ++i) x = blocks[i](std::move(x));
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

void train() {
  at::manual_seed(1);
  Net net;
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(1e-3));
  for (int64_t step = 1; step <= kSteps; ++step) {
    const Batch batch = make_batch();
    at::Tensor loss = at::cross_entropy_loss(net.forward(batch.images), batch.labels);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    if (step == 1 || step == kSteps)
      std::cout << "  step " << step << ": loss " << loss.item<float>() << "\n";
  }
}

int main() {
  train();
}
