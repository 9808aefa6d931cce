// What both sides of a comparison of step times begin with, in one file.
#pragma once
#include <ATen/core/Generator.h>
#include <dtk/models/layers.h>

#include <string>
#include <vector>

#include "toolkit/io/stored_tensor.h"

namespace dtk::bench {

/// Gives normal numbers to the trainable parameters that are 0. A fresh model's output is 0 whatever its
/// blocks do: a comparison would prove nothing.
void fill_zeros(const models::NamedTensors& parameters, const at::Generator& generator);

/// Appends "weight.<name>" of all parameters and "gradient_norm.<name>" of those that have a gradient, and
/// lets the gradients go.
void add_weights_and_gradients(const models::NamedTensors& parameters, std::vector<NamedTensor>& tensors);

void write_reference_file(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace dtk::bench
