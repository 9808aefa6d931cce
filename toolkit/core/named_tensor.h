// A tensor and the name it is stored under.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace dtk {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace dtk
