// The network of a forum thread in which checkpointing "does not reduce memory usage", whatever is made a
// segment: three convolutions with ReLU, and a linear head that holds nearly all parameters.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/policies/seam.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cstdint>
#include <vector>

namespace examples {

enum class Head {
  one,   // "small": one linear layer
  three  // "full": three side by side, the first through a sigmoid, their results concatenated
};

/// What becomes a checkpointed segment, by the names of the thread's attempts.
enum class Variant {
  plain,      // nothing
  per_op,     // each operator for itself, but for the first convolution and its ReLU
  conv_relu,  // each convolution with its ReLU; the head
  one_block,  // from the second convolution to the last ReLU
  all_conv    // from the first convolution to the last ReLU
};

struct NetworkShape {
  std::array<int64_t, 4> input = {100, 20, 19, 22};  // N, C, H, W
  std::array<int64_t, 3> channels = {50, 25, 10};    // of the convolutions' results
  int64_t outputs = 3258;                            // of each linear layer
  Head head = Head::one;

  /// Of the network's result: (N, outputs), or (N, 3 * outputs).
  std::vector<int64_t> result() const;
};

class ForumNet : public torch::nn::Module {
 public:
  explicit ForumNet(const NetworkShape& shape);
  /// x (N, C, H, W) to NetworkShape::result(). `run` runs the variant's segments; of `plain` each operator is
  /// one. The network must outlive the backward pass.
  at::Tensor forward(at::Tensor x, Variant variant, const dtk::policies::Run& run);
  /// With segments that keep their inputs only.
  at::Tensor forward(at::Tensor x, Variant variant);

 private:
  static constexpr size_t kConvolutions = 3, kStages = 2 * kConvolutions + 1;
  at::Tensor stage(size_t index, at::Tensor x, const dtk::policies::Run& run_operator);
  at::Tensor head(at::Tensor x, const dtk::policies::Run& run_operator);
  at::Tensor segment(size_t begin, size_t end, at::Tensor x, const dtk::policies::Run& run);

  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::Linear> linear_;
};

}  // namespace examples
