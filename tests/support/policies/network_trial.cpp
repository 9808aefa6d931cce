#include "support/policies/network_trial.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/event_log.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/offload.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <utility>

namespace dtk::bench {
namespace {

using namespace policies;

// A network with its weights; alive until the graph that it made is gone.
class Network {
 public:
  Network(const RandomNetwork& network, bool with_segments)
      : network_(network), with_segments_(with_segments) {
    const OwnerScope owner(Category::parameters, "net");
    for (const NetworkWeight& weight : network.weights) weights_.push_back(made(weight));
    for (const at::Tensor& weight : weights_) claim_gradient_when_written(weight, "net");
  }

  Tensors forward(Tensors&& inputs) const { return run(network_.root, std::move(inputs), nullptr); }
  const Tensors& weights() const { return weights_; }
  int64_t offloaded() const { return store_->counts().max_host_bytes; }

 private:
  static at::Tensor made(const NetworkWeight& weight) {
    switch (weight.kind) {
      case NetworkWeight::Kind::running_mean:
        return at::zeros(weight.sizes);
      case NetworkWeight::Kind::running_variance:
        return at::ones(weight.sizes);
      case NetworkWeight::Kind::counter:
        return at::zeros(weight.sizes, at::kLong);
      default:
        break;
    }
    int64_t terms = 1;
    for (size_t i = 1; i < weight.sizes.size(); ++i) terms *= weight.sizes[i];
    at::Tensor values = at::randn(weight.sizes).div_(std::sqrt(static_cast<double>(terms)));
    return values.requires_grad_(weight.kind == NetworkWeight::Kind::trained);
  }

  // As its segment, where there are any; `chain`: the segment that it is a part of.
  Tensors run(const RandomModule& tree, Tensors&& in, CheckpointSegment* chain) const {
    const ModulePathScope path(tree.path);
    std::optional<AutocastGuard> around;
    if (tree.autocast == Autocast::around) around.emplace(at::kCPU, true);
    const ModuleFn fn = [this, &tree](Tensors&& values) { return compute(tree, std::move(values)); };
    if (!with_segments_) return fn(std::move(in));
    if (chain != nullptr) return chain->append(tree.path, fn, std::move(in));
    switch (tree.segment) {
      case Segment::recomputed: {
        const auto keep = tree.keep.empty() ? nullptr : std::make_shared<KeptResults>(tree.keep);
        return checkpoint(tree.path, fn, std::move(in), keep);
      }
      case Segment::offloaded:
      case Segment::offloaded_on:
        return offload(tree.path, fn, std::move(in), store_, tree.segment == Segment::offloaded_on);
      default:
        return fn(std::move(in));
    }
  }

  Tensors compute(const RandomModule& tree, Tensors&& values) const {
    std::optional<AutocastGuard> within;
    if (tree.autocast == Autocast::within) within.emplace(at::kCPU, true);
    std::optional<CheckpointSegment> chain;
    if (with_segments_ && tree.segment == Segment::chained) chain.emplace();
    for (const Step& step : tree.steps) {
      const auto read = [&](size_t i) {
        const size_t slot = step.reads[i];
        const bool last = std::find(step.dead.begin(), step.dead.end(), slot) != step.dead.end();
        return last ? std::move(values[slot]) : values[slot];
      };
      Tensors made;
      if (step.operation == Operation::module) {
        for (size_t i = 0; i < step.reads.size(); ++i) made.push_back(read(i));
        made = run(tree.children[step.child], std::move(made), chain ? &*chain : nullptr);
      } else {
        made.push_back(result(step, read(0), step.reads.size() > 1 ? read(1) : at::Tensor()));
      }
      for (size_t i = 0; i < step.writes.size(); ++i) {
        values.resize(std::max(values.size(), step.writes[i] + 1));
        values[step.writes[i]] = std::move(made[i]);
      }
      for (const size_t slot : step.dead) values[slot].reset();
    }
    Tensors outputs;
    for (const auto& output : tree.outputs) {
      outputs.push_back(output ? values[*output] : at::Tensor());
      if (output && tree.autocast != Autocast::none) outputs.back() = outputs.back().to(at::kFloat);
    }
    return outputs;
  }

  at::Tensor result(const Step& step, at::Tensor&& x, at::Tensor&& other) const {
    at::Tensor y = computed(step, std::move(x), std::move(other));
    return step.name.empty() ? y : named(step.name, std::move(y));
  }

  at::Tensor computed(const Step& step, at::Tensor&& x, at::Tensor&& other) const {
    const auto weight = [&](size_t i) {
      return i < step.weights.size() ? weights_[step.weights[i]] : at::Tensor();
    };
    switch (step.operation) {
      case Operation::linear:
        return at::linear(x, weight(0), weight(1));
      case Operation::conv2d:
        return at::conv2d(x, weight(0), weight(1), 1, weight(0).size(2) / 2);
      case Operation::batch_norm:
        weight(4).add_(1);
        return at::batch_norm(x, weight(0), weight(1), weight(2), weight(3), true, 0.1, 1e-5, false);
      case Operation::layer_norm:
        return at::layer_norm(x, weight(0).sizes(), weight(0), weight(1));
      case Operation::relu:
        return at::relu(x);
      case Operation::gelu:
        return at::gelu(x);
      case Operation::silu:
        return at::silu(x);
      case Operation::tanh:
        return at::tanh(x);
      case Operation::dropout:
        return at::dropout(x, step.number, true);
      case Operation::relu_in_place:
        return at::relu_(x);
      case Operation::scale_in_place:
        return x.mul_(step.number);
      case Operation::dropout_in_place:
        return at::dropout_(x, step.number, true);
      case Operation::add:
        return at::add(x, other);
      case Operation::masked_fill: {
        std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
        sizes[0] = x.size(0);
        return at::masked_fill(x, other.view(sizes), 0.5);
      }
      case Operation::index_select:
        return at::index_select(x, 0, other);
      case Operation::flatten:
        return x.flatten(1);
      case Operation::module:
        break;
    }
    throw std::logic_error("a module is no operator");
  }

  const RandomNetwork& network_;
  const bool with_segments_;
  const std::shared_ptr<OffloadStore> store_ = std::make_shared<OffloadStore>(network_.offload_min_bytes);
  Tensors weights_;
};

// What a run leaves to compare.
struct Outcome {
  std::vector<std::pair<std::string, at::Tensor>> values;
  std::vector<int64_t> held;  // after each step's forward pass
  int64_t offloaded = 0;
  std::vector<LoggedPhase> device, host;
};

constexpr int kSteps = 2;
constexpr double kRate = 0.01;

Tensors inputs_of(const RandomNetwork& network) {
  const int64_t samples = network.sizes[0];
  at::Tensor x = at::randn(network.sizes);
  const at::Tensor positions = at::arange(samples);
  Tensors inputs = {x.requires_grad_(network.input_gradient), positions.remainder(3) == 1,
                    samples - 1 - positions};
  for (const at::Tensor& input : inputs) claim(input, Category::data, "batch");
  return inputs;
}

at::Tensor loss_of(Tensors&& outputs) {
  at::Tensor loss;
  for (at::Tensor& output : outputs) {
    if (!output.defined()) continue;
    at::Tensor term = std::exchange(output, {}).pow(2).mean();
    loss = loss.defined() ? loss + term : term;
  }
  return loss;
}

void add_values(Outcome& outcome, const std::string& what, const Tensors& values) {
  for (size_t i = 0; i < values.size(); ++i)
    outcome.values.emplace_back(what + " " + std::to_string(i),
                                values[i].defined() ? values[i].detach() : values[i]);
}

// Gradients are taken off the leaves.
Tensors gradients_of(const Tensors& leaves) {
  Tensors gradients;
  for (const at::Tensor& leaf : leaves) gradients.push_back(std::exchange(leaf.mutable_grad(), {}));
  return gradients;
}

void step(const Network& net, const Tensors& inputs, const std::string& name, Outcome& outcome) {
  at::Tensor loss;
  {
    const PhaseScope phase("forward");
    const int64_t before = cpu_accounts().live_bytes();
    Tensors outputs = net.forward(Tensors(inputs));
    add_values(outcome, name + ", output", outputs);
    loss = loss_of(std::move(outputs));
    outcome.held.push_back(cpu_accounts().live_bytes() - before);
  }
  {
    const PhaseScope phase("backward");
    torch::autograd::backward({std::exchange(loss, {})}, {});
  }
  const PhaseScope phase("update");
  Tensors leaves = net.weights();
  leaves.push_back(inputs[0]);
  const Tensors gradients = gradients_of(leaves);
  add_values(outcome, name + ", gradient of leaf", gradients);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i + 1 < leaves.size(); ++i) {
    if (gradients[i].defined()) leaves[i].sub_(gradients[i], kRate);
  }
}

// The whole job: of the same code in runs and plans.
Outcome train(const RandomNetwork& network, bool with_segments) {
  Outcome outcome;
  at::manual_seed(network.seed);
  const SavedTensorEngineGuard engine;
  const SavedTensorScope ledger(saved_tensor_ledger());
  const Network net(network, with_segments);
  const Tensors inputs = inputs_of(network);
  for (int i = 1; i <= kSteps; ++i) step(net, inputs, "step " + std::to_string(i), outcome);
  add_values(outcome, "weight", net.weights());
  outcome.values.emplace_back("random number", at::rand({4}));
  outcome.offloaded = net.offloaded();
  return outcome;
}

Outcome logged(const std::function<Outcome()>& job) {
  MemoryAccounts &cpu = cpu_accounts(), &host = host_accounts();
  cpu.reset_phases("build");
  host.reset_phases("build");
  Outcome outcome;
  std::vector<LoggedPhase> of_host;
  outcome.device = event_log_of(cpu, [&] { of_host = event_log_of(host, [&] { outcome = job(); }); });
  outcome.host = std::move(of_host);
  return outcome;
}

Outcome run(const RandomNetwork& network, bool with_segments) {
  const CountingAllocatorGuard counting;
  return logged([&] { return train(network, with_segments); });
}

Outcome plan(const RandomNetwork& network) {
  Outcome outcome;
  planner::simulate(at::kCPU, [&](const planner::EndOfPlan&) {
    outcome = logged([&] { return train(network, /*with_segments=*/true); });
    outcome.values.clear();
  });
  return outcome;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  return std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

void compare_values(const Outcome& plain, const Outcome& segmented, NetworkTrial& trial) {
  if (plain.values.size() != segmented.values.size()) throw std::logic_error("runs of different networks");
  for (size_t i = 0; i < plain.values.size(); ++i) {
    const auto& [name, value] = plain.values[i];
    if (!same_bits(value, segmented.values[i].second)) trial.different_values.push_back(name);
    if (!value.defined()) continue;
    ++trial.values;
    if (!at::isfinite(value).all().item<bool>()) throw std::runtime_error(name + " is not finite");
  }
}

class ByteComparison {
 public:
  explicit ByteComparison(std::vector<std::string>& lines) : lines_(lines) {}

  void number(const std::string& what, int64_t planned, int64_t measured) {
    if (planned == measured) return;
    lines_.push_back(what + ": planned " + std::to_string(planned) + ", measured " +
                     std::to_string(measured));
  }

  void phases(const std::string& where, const std::vector<LoggedPhase>& planned,
              const std::vector<LoggedPhase>& measured) {
    number(where + "phases", static_cast<int64_t>(planned.size()), static_cast<int64_t>(measured.size()));
    for (size_t i = 0; i < std::min(planned.size(), measured.size()); ++i)
      phase(where + measured[i].name + ", ", planned[i], measured[i]);
  }

 private:
  using Items = std::map<std::string, std::pair<int64_t, int64_t>>;

  void phase(const std::string& where, const LoggedPhase& planned, const LoggedPhase& measured) {
    number(where + "highest sum", planned.kept.bytes, measured.kept.bytes);
    Items bytes, count;
    add(planned, &Items::mapped_type::first, bytes, count);
    add(measured, &Items::mapped_type::second, bytes, count);
    for (const auto& [what, both] : bytes) number(where + what + ", bytes", both.first, both.second);
    for (const auto& [what, both] : count) number(where + what + ", storages", both.first, both.second);
  }

  static void add(const LoggedPhase& phase, int64_t Items::mapped_type::*side, Items& bytes, Items& count) {
    for (const auto& [owner, born] : phase.born) {
      const std::string what = std::string("born: ") + policies::name_of(owner.first) + " " + owner.second;
      bytes[what].*side = born.bytes;
      count[what].*side = born.count;
    }
  }

  std::vector<std::string>& lines_;
};

void compare_bytes(const Outcome& planned, const Outcome& measured, NetworkTrial& trial) {
  ByteComparison compare(trial.different_bytes);
  for (size_t i = 0; i < measured.held.size(); ++i)
    compare.number("alive after forward", planned.held.at(i), measured.held[i]);
  compare.number("offloaded", planned.offloaded, measured.offloaded);
  compare.phases("", planned.device, measured.device);
  compare.phases("host, ", planned.host, measured.host);
  for (const LoggedPhase& phase : measured.device) {
    for (const auto& [owner, born] : phase.born) trial.storages += born.count;
  }
}

}  // namespace

NetworkTrial try_network(const RandomNetwork& network) {
  const ThreadCountGuard threads(1);
  NetworkTrial trial;
  const Outcome planned = plan(network);
  const Outcome plain = run(network, /*with_segments=*/false),
                segmented = run(network, /*with_segments=*/true);
  compare_values(plain, segmented, trial);
  compare_bytes(planned, segmented, trial);
  trial.held_plain = plain.held.back();
  trial.held = segmented.held.back();
  trial.offloaded = segmented.offloaded;
  return trial;
}

}  // namespace dtk::bench
