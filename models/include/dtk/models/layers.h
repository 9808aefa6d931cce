// What models are made of.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace dtk::models {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Told of each parameter as soon as it has its first values, while the others are yet to be made. May give
/// it another storage.
using ParameterMade = std::function<void(const std::string& name, const at::Tensor& parameter)>;

/// weight (out, in), bias (out); applied over the last dimension.
struct Linear {
  at::Tensor weight, bias;
  at::Tensor operator()(const at::Tensor& x) const;
};

/// x (..., in) times weightᵀ of a weight (out, in) that is not trained. Under autocast at::linear would
/// convert the weight for its product and keep the copy until backward, 2 B a number; here it is converted
/// again there.
at::Tensor frozen_linear(const at::Tensor& x, const at::Tensor& weight);

inline constexpr int64_t kTimeFeatures = 256;

/// Sinusoidal features (N, 256) of t (N): cosines first.
at::Tensor time_features(const at::Tensor& t);

}  // namespace dtk::models
