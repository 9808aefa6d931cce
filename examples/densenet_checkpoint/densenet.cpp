#include "densenet_checkpoint/densenet.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/relu.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <utility>

namespace examples {

using dtk::policies::Tensors;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

namespace {

// Without bias; N(0, sqrt(2 / (out * k * k))), which is Kaiming's for ReLU by the results.
Conv2d convolution(int64_t from, int64_t to, int64_t side) {
  Conv2d conv(Conv2dOptions(from, to, side).padding(side / 2).bias(false));
  const at::NoGradGuard no_grad;
  conv->weight.normal_(0, std::sqrt(2.0 / static_cast<double>(to * side * side)));
  return conv;
}

}  // namespace

DenseNetOptions DenseNetOptions::of_depth(int64_t depth) {
  constexpr int64_t blocks = 3, convolutions_a_layer = 2, others = 4;
  const int64_t layers = (depth - others) / (blocks * convolutions_a_layer);
  if (layers < 1 || others + layers * blocks * convolutions_a_layer != depth) {
    throw std::invalid_argument("depth " + std::to_string(depth) +
                                ": allowed are 10, 16, 22 and so on in steps of 6");
  }
  DenseNetOptions options;
  options.layers.assign(blocks, layers);
  return options;
}

BatchNorm::BatchNorm(int64_t channels, StatisticsRule rule) : BatchNorm2dImpl(channels), rule_(rule) {}

at::Tensor BatchNorm::forward(const at::Tensor& x) {
  const bool updates = rule_ == StatisticsRule::every_pass || x.requires_grad();
  if (!is_training() || updates) return BatchNorm2dImpl::forward(x);
  // With momentum 0 the statistics stay as they are, to the bit, and the same tensors are saved.
  return at::batch_norm(x, weight, bias, running_mean, running_var, /*training=*/true, /*momentum=*/0,
                        options.eps(), /*cudnn_enabled=*/false);
}

Tensors run_segment_plainly(const std::string&, const dtk::policies::ModuleFn& fn, Tensors&& inputs,
                            const Tensors&) {
  return fn(std::move(inputs));
}

struct DenseNet::Layer : torch::nn::Module {
  Layer(int64_t from, const DenseNetOptions& options, StatisticsRule rule) {
    const int64_t between = options.bottleneck * options.growth;
    norm1 = register_module("norm1", std::make_shared<BatchNorm>(from, rule));
    conv1 = register_module("conv1", convolution(from, between, 1));
    norm2 = register_module("norm2", std::make_shared<BatchNorm>(between, rule));
    conv2 = register_module("conv2", convolution(between, options.growth, 3));
  }

  // Of all features before this layer, each (N, its channels, H, W).
  at::Tensor narrowed(Tensors&& features) {
    at::Tensor x = at::cat(features, 1);
    features.clear();
    x = norm1->forward(x);
    return conv1->forward(at::relu_(x));
  }

  at::Tensor forward(const Tensors& features, const std::string& path, const RunSegment& run) {
    const auto segment = [this](Tensors&& inputs) { return Tensors{narrowed(std::move(inputs))}; };
    at::Tensor x = run(path, segment, Tensors(features), {norm1->weight, norm1->bias, conv1->weight}).front();
    x = norm2->forward(x);
    return conv2->forward(at::relu_(x));
  }

  std::shared_ptr<BatchNorm> norm1, norm2;
  Conv2d conv1{nullptr}, conv2{nullptr};
};

struct DenseNet::Transition : torch::nn::Module {
  Transition(int64_t from, StatisticsRule rule) {
    norm = register_module("norm", std::make_shared<BatchNorm>(from, rule));
    conv = register_module("conv", convolution(from, from / 2, 1));
  }

  at::Tensor forward(at::Tensor x) {
    x = norm->forward(x);
    return at::avg_pool2d(conv->forward(at::relu_(x)), 2);
  }

  std::shared_ptr<BatchNorm> norm;
  Conv2d conv{nullptr};
};

DenseNet::DenseNet(const DenseNetOptions& options, StatisticsRule rule, RunSegment run)
    : run_(std::move(run)) {
  const auto features = register_module("features", std::make_shared<torch::nn::Module>("features"));
  conv0_ = features->register_module("conv0", convolution(3, options.first, 3));
  int64_t channels = options.first;
  for (size_t b = 0; b < options.layers.size(); ++b) {
    const std::string number = std::to_string(b + 1);
    const auto dense =
        features->register_module("denseblock" + number, std::make_shared<torch::nn::Module>("denseblock"));
    blocks_.emplace_back();
    for (int64_t i = 0; i < options.layers[b]; ++i, channels += options.growth) {
      blocks_.back().push_back(dense->register_module("denselayer" + std::to_string(i + 1),
                                                      std::make_shared<Layer>(channels, options, rule)));
    }
    if (b + 1 == options.layers.size()) break;
    transitions_.push_back(
        features->register_module("transition" + number, std::make_shared<Transition>(channels, rule)));
    channels /= 2;
  }
  norm_final_ = features->register_module("norm_final", std::make_shared<BatchNorm>(channels, rule));
  classifier_ = register_module("classifier", torch::nn::Linear(channels, options.classes));
  const at::NoGradGuard no_grad;
  classifier_->bias.zero_();
}

at::Tensor DenseNet::block(size_t index, at::Tensor x) {
  Tensors features{std::move(x)};
  const std::string path = "features.denseblock" + std::to_string(index + 1) + ".denselayer";
  for (size_t i = 0; i < blocks_[index].size(); ++i) {
    features.push_back(blocks_[index][i]->forward(features, path + std::to_string(i + 1), run_));
  }
  return at::cat(features, 1);
}

at::Tensor DenseNet::forward(const at::Tensor& images) {
  at::Tensor x = conv0_->forward(images);
  for (size_t b = 0; b < blocks_.size(); ++b) {
    x = block(b, std::move(x));
    if (b < transitions_.size()) x = transitions_[b]->forward(std::move(x));
  }
  x = norm_final_->forward(x);
  x = at::avg_pool2d(at::relu_(x), 8);
  return classifier_->forward(x.flatten(1));
}

}  // namespace examples
