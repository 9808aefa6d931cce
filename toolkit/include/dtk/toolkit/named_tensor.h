// A tensor and the name it is stored under.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace dtk {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Copies each tensor of `from` into the tensor of `into` that has its name, across devices. Throws
/// FileError that calls the whole `what` and lists all names that are missing, unknown or of another shape;
/// nothing is copied then.
void copy_by_name(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& into,
                  const std::string& what);

}  // namespace dtk
