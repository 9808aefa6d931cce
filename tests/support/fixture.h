// Stored inputs, weights and outputs of original models: tests/fixtures/<name>.safetensors.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dtk::test {

class Fixture {
 public:
  explicit Fixture(std::map<std::string, at::Tensor> tensors) : tensors_(std::move(tensors)) {}
  const at::Tensor& at(const std::string& name) const;  // throws std::out_of_range naming the entry
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }

 private:
  std::map<std::string, at::Tensor> tensors_;
};

Fixture read_fixture(const std::string& name);

/// Copies fixture entry prefix + name into each parameter.
void load_parameters(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                     const Fixture& fixture, const std::string& prefix);

}  // namespace dtk::test
