// A small convolutional classifier of Fashion-MNIST images.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "toolkit/io/stored_tensor.h"

namespace dtk::judging {

inline constexpr int64_t image_side = 28;
inline constexpr int64_t class_count = 10;
inline constexpr int64_t feature_count = 64;

struct JudgeOutput {
  at::Tensor features;  // (N, 64)
  at::Tensor logits;    // (N, 10)
};

/// Three times convolution 3x3, maximum over 2x2, batch norm, ReLU; a linear layer to 64 features with ReLU;
/// a linear layer to 10 classes. Pooling before the norm gives a net of the same power for a quarter of the
/// norm's time. Not thread-safe while training.
class JudgeNet {
 public:
  /// Initial weights drawn from `seed` (He); float32 on the CPU.
  explicit JudgeNet(uint64_t seed);

  /// images (N, 1, 28, 28). Training normalises by the batch and updates the running statistics; else these
  /// are used, so that an image's output does not depend on the others.
  JudgeOutput forward(const at::Tensor& images, bool training);

  /// Live tensors; they require gradients.
  const std::vector<std::pair<std::string, at::Tensor>>& parameters() const { return parameters_; }
  /// Parameters and running statistics, live.
  std::vector<NamedTensor> state() const;

 private:
  struct Stage {
    at::Tensor weight, scale, shift, mean, variance;
  };
  struct Linear {
    at::Tensor weight, bias;
  };
  at::Tensor parameter(const std::string& name, at::Tensor value);
  Linear linear(const std::string& name, at::Tensor weight);

  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  std::array<Stage, 3> stages_;
  Linear to_features_, to_logits_;
};

}  // namespace dtk::judging
