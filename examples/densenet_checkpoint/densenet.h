// DenseNet-BC for 32x32 images (Huang et al. 2017, "Densely Connected Convolutional Networks"), in its
// memory-efficient form: what a layer makes of all earlier features can be a checkpointed segment.
//
// A layer reads the results of all layers before it, concatenated and normalised anew. Kept for backward,
// those copies grow with the square of the depth; recomputed, what is kept grows with the depth.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/seam.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace examples {

struct DenseNetOptions {
  std::vector<int64_t> layers = {16, 16, 16};  // of each block; depth 100
  int64_t growth = 12;                         // channels that a layer adds
  int64_t bottleneck = 4;                      // times the growth: channels between its two convolutions
  int64_t first = 24;                          // channels of the first convolution
  int64_t classes = 10;

  /// A depth counts convolutions and the classifier: 6 n + 4. Throws std::invalid_argument for others.
  static DenseNetOptions of_depth(int64_t depth);
};

/// When a batch norm in training mode updates its running statistics.
enum class StatisticsRule {
  every_pass,    // as a stock batch norm: twice in a segment that runs twice, unless who runs it sees to that
  with_gradient  // where its input needs a gradient, as CpBatchNorm2d of 2018
};

/// torch::nn::BatchNorm2d; with the other rule, it does not move its statistics where that says so.
class BatchNorm : public torch::nn::BatchNorm2dImpl {
 public:
  BatchNorm(int64_t channels, StatisticsRule rule);
  at::Tensor forward(const at::Tensor& x);

 private:
  const StatisticsRule rule_;
};

/// Runs fn(inputs), perhaps as a checkpointed segment. `parameters`: those that fn uses.
using RunSegment = std::function<dtk::policies::Tensors(
    const std::string& path, const dtk::policies::ModuleFn& fn, dtk::policies::Tensors&& inputs,
    const dtk::policies::Tensors& parameters)>;

/// Runs fn and keeps all that it saves.
dtk::policies::Tensors run_segment_plainly(const std::string& path, const dtk::policies::ModuleFn& fn,
                                           dtk::policies::Tensors&& inputs,
                                           const dtk::policies::Tensors& parameters);

class DenseNet : public torch::nn::Module {
 public:
  /// `run` gets concatenation, first norm, ReLU and first convolution of each layer as one segment.
  /// Parameters and buffers have the names of the Python original; drawn from the default generator.
  DenseNet(const DenseNetOptions& options, StatisticsRule rule, RunSegment run);
  /// x (N, 3, 32, 32) to logits (N, classes). The network must outlive the backward pass.
  at::Tensor forward(const at::Tensor& x);

 private:
  struct Layer;
  struct Transition;
  at::Tensor block(size_t index, at::Tensor x);

  const RunSegment run_;
  torch::nn::Conv2d conv0_{nullptr};
  std::vector<std::vector<std::shared_ptr<Layer>>> blocks_;
  std::vector<std::shared_ptr<Transition>> transitions_;
  std::shared_ptr<BatchNorm> norm_final_;
  torch::nn::Linear classifier_{nullptr};
};

}  // namespace examples
