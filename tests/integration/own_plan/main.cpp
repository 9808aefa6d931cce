// A model, a policy and a training loop that dtk has never heard of: planned on the CPU, run there, and
// compared byte by byte, phase by phase, without and with the policy.
#include <ATen/ATen.h>
#include <dtk/policies/phase_meter.h>
#include <dtk/policies/policy.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "planned_and_measured.h"

namespace nn = torch::nn;
using namespace dtk::policies;

constexpr int64_t kBatch = 24, kTokens = 12, kWidth = 32, kClasses = 5, kSteps = 3;

// Keeps what autograd saves within the model in bf16.
class HalvedSaves final : public Policy {
 public:
  std::string name() const override { return "halved_saves"; }
  PolicyReport report() const override { return {name(), true, "keeps saved tensors in bf16"}; }

 private:
  struct Half final : SavedTensor {
    explicit Half(std::unique_ptr<SavedTensor> tensor) : kept(std::move(tensor)) {}
    at::Tensor unpack() override { return kept->unpack().to(at::kFloat); }
    const std::unique_ptr<SavedTensor> kept;
  };
  struct Layer final : SavedTensorLayer {
    std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& below) override {
      if (tensor.scalar_type() != at::kFloat) return below.pack(tensor);
      return std::make_unique<Half>(below.pack(tensor.to(at::kBFloat16)));
    }
  };

  void put_in(Seam& seam) override {
    seam.run = [inner = seam.run, layer = std::make_shared<Layer>()](std::string_view path,
                                                                     const ModuleFn& fn, Tensors&& inputs) {
      const SavedTensorScope scope(layer);
      return inner(path, fn, std::move(inputs));
    };
  }
};

// Tokens that are mixed and pass a gate, three times over.
struct Net : nn::Module {
  nn::Linear head = register_module("head", nn::Linear(kWidth, kClasses));
  std::vector<nn::Linear> mix, gate;
  std::vector<nn::LayerNorm> norm;
  Seam seam;

  Net() {
    for (int i = 0; i < 3; ++i) {
      const std::string number = std::to_string(i);
      mix.push_back(register_module("mix" + number, nn::Linear(kTokens, kTokens)));
      gate.push_back(register_module("gate" + number, nn::Linear(kWidth, 2 * kWidth)));
      norm.push_back(register_module("norm" + number, nn::LayerNorm(nn::LayerNormOptions({kWidth}))));
    }
  }

  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < mix.size(); ++i) {
      const auto block = [this, i](at::Tensor in) {
        const at::Tensor mixed = mix[i](norm[i](in).transpose(1, 2)).transpose(1, 2);
        return in + at::glu(gate[i](at::gelu(mixed)));
      };
      x = seam.module("blocks." + std::to_string(i), block, std::move(x));
    }
    return head(x.mean(1));
  }
};

void train(bool with_policy) {
  Net net;
  HalvedSaves policy;
  if (with_policy) policy.apply(net.seam);
  const SavedTensorEngineGuard engine;
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(1e-3));
  for (int64_t step = 0; step < kSteps; ++step) {
    const at::Tensor x = at::rand({kBatch, kTokens, kWidth}), y = at::randint(kClasses, {kBatch}, at::kLong);
    at::Tensor loss;
    {
      const PhaseScope phase("forward");
      loss = at::cross_entropy_loss(net.forward(x), y);
    }
    {
      const PhaseScope phase("backward");
      loss.backward();
    }
    const PhaseScope phase("update");
    optimizer.step();
    optimizer.zero_grad();
  }
}

int main() {
  for (const bool with_policy : {false, true}) {
    std::cout << (with_policy ? "With" : "Without") << " the policy\n";
    print_planned_and_measured([&] { train(with_policy); });
  }
}
