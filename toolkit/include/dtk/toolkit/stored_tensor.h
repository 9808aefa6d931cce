// A tensor in a file: what it is called and how large it is, without its data.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dtk {

struct StoredTensor {
  std::string name;
  c10::ScalarType type;
  std::vector<int64_t> shape;
  /// Reads the data: on the CPU, contiguous, in memory of its own. Throws FileError. Needs the FileSystem
  /// that the file was opened with; not for two threads at once.
  std::function<at::Tensor()> read;
};

}  // namespace dtk
