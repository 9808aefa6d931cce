// What models are made of.
#pragma once
#include <ATen/core/Tensor.h>

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

}  // namespace dtk::models
