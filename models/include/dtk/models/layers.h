// What models are made of.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dtk::models {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// weight (out, in), bias (out); applied over the last dimension.
struct Linear {
  at::Tensor weight, bias;
  at::Tensor operator()(const at::Tensor& x) const;
};

inline constexpr int64_t kTimeFeatures = 256;

/// Sinusoidal features (N, 256) of t (N): cosines first.
at::Tensor time_features(const at::Tensor& t);

}  // namespace dtk::models
