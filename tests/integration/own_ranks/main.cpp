// A network that dtk has never heard of, trained by several ranks on a group of the program's own: each
// updates its part, and with the argument "parameters" has no more of the weights than that. Says how much
// that is, and the bits of weights and averages at the end.
#include <ATen/ATen.h>
#include <dtk/policies/gradient_exchange.h>
#include <dtk/policies/policy_set.h>
#include <dtk/policies/shards.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace nn = torch::nn;
using namespace dtk::policies;

constexpr int64_t kSteps = 5, kMicroBatches = 4, kSamples = 6, kWidth = 48;

struct Net : nn::Module {
  std::vector<nn::Linear> blocks;
  std::vector<std::string> paths;
  Seam seam;

  Net() {
    for (int i = 0; i < 3; ++i) {
      paths.push_back("block" + std::to_string(i));
      blocks.push_back(register_module(paths.back(), nn::Linear(kWidth, kWidth)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < blocks.size(); ++i) x = at::gelu(seam.module(paths[i], blocks[i], std::move(x)));
    return x;
  }
};

int variable(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

c10::intrusive_ptr<c10d::Backend> own_group(int rank, int ranks) {
  c10d::TCPStoreOptions options;
  options.isServer = rank == 0;
  options.port = static_cast<uint16_t>(variable("MASTER_PORT", 0));
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const auto how = c10d::ProcessGroupGloo::Options::create_default(std::chrono::seconds(20));
  how->devices = {c10d::ProcessGroupGloo::createDefaultDevice()};
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, ranks, how);
}

uint64_t bits_of(const Net& net, Shards& shards) {
  const at::NoGradGuard no_grad;
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (size_t block = 0; block < net.blocks.size(); ++block) {
    const Shards::Use use(shards, net.paths[block]);
    for (const auto& parameter : net.blocks[block]->parameters()) {
      const at::Tensor values = parameter.detach().contiguous();
      const auto* const bytes = static_cast<const unsigned char*>(values.const_data_ptr());
      for (size_t i = 0; i < values.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
    }
  }
  return hash;
}

int main(int argc, char** argv) {
  const int rank = variable("RANK", 0), ranks = variable("WORLD_SIZE", 1);
  at::manual_seed(1);
  Net net;
  const NamedTensors parameters = net.named_parameters().pairs();
  ShardLayout layout{.min_unit = 4096, .modules = net.paths};
  const bool divides_weights = argc > 1 && std::string_view(argv[1]) == "parameters";
  if (divides_weights) layout.level = ShardLevel::parameters;
  const std::unique_ptr<Shards> shards =
      ranks == 1 ? std::make_unique<Shards>(parameters, layout)
                 : std::make_unique<Shards>(own_group(rank, ranks), parameters, layout);
  PolicyOptions options;
  options.precision.cpu = CpuPrecision::fp32;
  options.ema.decay = 0.5;
  if (divides_weights) options.shard.level = ShardLevel::parameters;
  PolicySet policies(options, {at::kCPU, parameters, net.paths, true, shards.get()}, net.seam);
  std::optional<GradientExchange> exchange;
  if (ranks > 1) exchange.emplace(*shards);
  std::vector<at::Tensor> own;
  int64_t elements = 0;
  for (const auto& [name, tensor] : shards->own()) {
    own.push_back(tensor);
    elements += tensor.numel();
  }
  torch::optim::AdamW optimizer(own, torch::optim::AdamWOptions(1e-2));
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t first = 0; first < kMicroBatches; first += ranks) {
      if (exchange) exchange->begin_round({std::vector<bool>(ranks, true), first + ranks >= kMicroBatches});
      at::manual_seed(static_cast<uint64_t>(100 + step * kMicroBatches + first + rank));
      const at::Tensor x = at::randn({kSamples, kWidth});
      auto scope = policies.forward_scope();
      const at::Tensor loss =
          (net.forward(x) - x.flip(1)).square().mean() / static_cast<double>(kMicroBatches);
      scope.reset();
      loss.backward();
      if (exchange) exchange->end_round();
    }
    policies.step(optimizer);
    exchange ? exchange->release() : optimizer.zero_grad();
  }
  for (const auto& report : policies.reports())
    if (report.policy == "shard") std::cout << report.reason << "\n";
  std::cout << "updates " << elements << "\nweights " << bits_of(net, *shards) << "\n";
  const auto averages = policies.sampling_weights();
  std::cout << "averages " << bits_of(net, *shards) << std::endl;
  std::_Exit(0);  // Gloo's threads are not waited for
}
