// A stranger's family: a tower whose weights are frozen and packed in 4 bits, and a decoder behind it that is
// trained, in a program that knows nothing of dtk's own models. Planned and run, with and without
// checkpointing, and refused where the tower is to be recomputed.
#include <ATen/ATen.h>
#include <dtk/models/quantized.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/phase_meter.h>
#include <dtk/policies/policy_set.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <iostream>
#include <string>
#include <vector>

#include "../own_plan/planned_and_measured.h"

namespace nn = torch::nn;
using namespace dtk::policies;
using dtk::models::PackedWeight;

constexpr int64_t kBatch = 6, kPatches = 9, kWords = 14, kWidth = 64, kHeads = 4, kVocabulary = 40,
                  kLayers = 3;

PackedWeight drawn(int64_t out, int64_t in) {
  PackedWeight weight =
      dtk::models::empty_packed(dtk::models::Packing::nf4, out, in, /*double_quant=*/true, at::kCPU);
  weight.codes.random_(0, 256);
  weight.absmax.random_(0, 256);
  weight.nested_absmax.fill_(0.05);
  weight.nested_offset.fill_(0.1);
  for (const auto& part : weight.tensors()) mark_frozen(part.second);
  return weight;
}

// x + W2 gelu(W1 norm(x)), frozen.
struct TowerLayer {
  PackedWeight first = drawn(4 * kWidth, kWidth), second = drawn(kWidth, 4 * kWidth);

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor inner = at::gelu(dtk::models::packed_linear(at::layer_norm(x, {kWidth}), first));
    return x + dtk::models::packed_linear(inner, second);
  }
};

struct DecoderLayerImpl : nn::Module {
  nn::LayerNorm norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::LayerNorm norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear qkv = register_module("qkv", nn::Linear(kWidth, 3 * kWidth));
  nn::Linear out = register_module("out", nn::Linear(kWidth, kWidth));
  nn::Linear up = register_module("up", nn::Linear(kWidth, 4 * kWidth));
  nn::Linear down = register_module("down", nn::Linear(4 * kWidth, kWidth));

  at::Tensor forward(const at::Tensor& x, const Attention& attention) {
    const int64_t N = x.size(0), T = x.size(1);
    const auto parts =
        qkv(norm1(x)).reshape({N, T, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4}).unbind();
    const at::Tensor mixed = attention(parts[0], parts[1], parts[2], {.causal = true});
    const at::Tensor attended = x + out(mixed.transpose(1, 2).flatten(2));
    return attended + down(at::silu(up(norm2(attended))));
  }
};
TORCH_MODULE(DecoderLayer);

struct Net : nn::Module {
  std::vector<TowerLayer> tower{kLayers};
  nn::Linear bridge = register_module("bridge", nn::Linear(kWidth, kWidth));
  nn::Embedding words = register_module("words", nn::Embedding(kVocabulary, kWidth));
  std::vector<DecoderLayer> decoder;
  nn::Linear head = register_module("head", nn::Linear(kWidth, kVocabulary));
  std::vector<std::string> paths;
  Seam seam;

  Net() {
    const auto layers = register_module("decoder", std::make_shared<nn::Module>());
    for (int64_t i = 0; i < kLayers; ++i) {
      paths.push_back("tower." + std::to_string(i));
      decoder.push_back(layers->register_module(std::to_string(i), DecoderLayer()));
    }
    for (int64_t i = 0; i < kLayers; ++i) paths.push_back("decoder." + std::to_string(i));
  }

  // Logits (N, T, V) of words behind patches.
  at::Tensor forward(at::Tensor patches, const at::Tensor& ids) {
    for (size_t i = 0; i < tower.size(); ++i) patches = seam.module(paths[i], tower[i], std::move(patches));
    at::Tensor x = at::cat({bridge(patches), words(ids)}, 1);
    for (size_t i = 0; i < decoder.size(); ++i) {
      const auto layer = [one = decoder[i], this](const at::Tensor& in) mutable {
        return one->forward(in, seam.attention);
      };
      x = seam.module(paths[tower.size() + i], layer, std::move(x));
    }
    return head(x.narrow(1, kPatches, kWords));
  }
};

PolicyOptions options_of(Enabled checkpoint, const std::string& target = "") {
  PolicyOptions options;
  options.checkpoint.enabled = checkpoint;
  if (!target.empty()) options.checkpoint.targets = {target};
  return options;
}

std::vector<PolicyReport> train(const PolicyOptions& options) {
  Net net;
  PolicySet policies(options, {at::kCPU, net.named_parameters().pairs(), net.paths}, net.seam);
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(1e-3));
  for (int64_t step = 0; step < 2; ++step) {
    at::Tensor loss;
    {
      const PhaseScope phase("forward");
      const auto scope = policies.forward_scope();
      const at::Tensor ids = at::randint(kVocabulary, {kBatch, kWords}, at::kLong);
      const at::Tensor logits = net.forward(at::rand({kBatch, kPatches, kWidth}), ids);
      loss = at::cross_entropy_loss(logits.flatten(0, 1), ids.flatten());
    }
    {
      const PhaseScope phase("backward");
      loss.backward();
    }
    const PhaseScope phase("update");
    policies.step(optimizer);
    optimizer.zero_grad();
  }
  return policies.reports();
}

int main() {
  for (const Enabled enabled : {Enabled::off, Enabled::on}) {
    std::vector<PolicyReport> reports;
    std::cout << (enabled == Enabled::on ? "With" : "Without") << " checkpointing\n";
    print_planned_and_measured([&] { reports = train(options_of(enabled)); });
    for (const PolicyReport& report : reports)
      std::cout << "  " << report.policy << (report.active ? " on: " : " off: ") << report.reason << "\n";
  }
  try {
    train(options_of(Enabled::on, "tower.*"));
  } catch (const PolicyError& error) {
    std::cout << "Refused\n  " << error.what() << "\n";
  }
}
