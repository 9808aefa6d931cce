#include "judge_net.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

namespace dtk::judging {
namespace {

constexpr std::array<int64_t, 4> channels = {1, 16, 48, 96};
constexpr int64_t last_side = 3;  // 28, 14, 7, 3
constexpr double norm_momentum = 0.1;
constexpr double norm_eps = 1e-5;

// Normal values with the variance that keeps activations' scale through a ReLU.
at::Tensor he_normal(at::IntArrayRef shape, int64_t fan_in, const at::Generator& generator) {
  return at::empty(shape, at::kFloat).normal_(0.0, std::sqrt(2.0 / static_cast<double>(fan_in)), generator);
}

}  // namespace

JudgeNet::JudgeNet(uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (size_t i = 0; i < stages_.size(); ++i) {
    const std::string path = "stages." + std::to_string(i);
    const int64_t in = channels[i];
    const int64_t out = channels[i + 1];
    Stage& stage = stages_[i];
    stage.weight = parameter(path + ".conv.weight", he_normal({out, in, 3, 3}, 9 * in, generator));
    stage.scale = parameter(path + ".norm.weight", at::ones({out}));
    stage.shift = parameter(path + ".norm.bias", at::zeros({out}));
    stage.mean = at::zeros({out});
    stage.variance = at::ones({out});
  }
  const int64_t flat = channels.back() * last_side * last_side;
  to_features_ = linear("features", he_normal({feature_count, flat}, flat, generator));
  to_logits_ = linear("classes", he_normal({class_count, feature_count}, feature_count, generator));
}

at::Tensor JudgeNet::parameter(const std::string& name, at::Tensor value) {
  value.set_requires_grad(true);
  parameters_.emplace_back(name, value);
  return value;
}

JudgeNet::Linear JudgeNet::linear(const std::string& name, at::Tensor weight) {
  const int64_t out = weight.size(0);
  const at::Tensor kept = parameter(name + ".weight", std::move(weight));
  return {kept, parameter(name + ".bias", at::zeros({out}))};
}

JudgeOutput JudgeNet::forward(const at::Tensor& images, bool training) {
  at::Tensor x = images;
  for (const Stage& stage : stages_) {
    x = at::conv2d(x, stage.weight, {}, /*stride=*/1, /*padding=*/1);
    x = at::max_pool2d(x, {2, 2});
    x = at::batch_norm(x, stage.scale, stage.shift, stage.mean, stage.variance, training, norm_momentum,
                       norm_eps, /*cudnn_enabled=*/false);
    x = at::relu(x);
  }
  JudgeOutput output;
  output.features = at::relu(at::linear(x.flatten(1), to_features_.weight, to_features_.bias));
  output.logits = at::linear(output.features, to_logits_.weight, to_logits_.bias);
  return output;
}

std::vector<NamedTensor> JudgeNet::state() const {
  std::vector<NamedTensor> state;
  for (const auto& [name, tensor] : parameters_) state.push_back({name, tensor});
  for (size_t i = 0; i < stages_.size(); ++i) {
    const std::string path = "stages." + std::to_string(i) + ".norm.running_";
    state.push_back({path + "mean", stages_[i].mean});
    state.push_back({path + "variance", stages_[i].variance});
  }
  return state;
}

}  // namespace dtk::judging
