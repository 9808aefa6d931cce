// Tensors as a pickle of torch.save describes them, checked against the storages they lie in.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/io/pickle.h"

namespace dtk {

struct TensorLayout {
  std::string storage;  // its key: the data are in the entry data/<key>
  c10::ScalarType type;
  int64_t offset = 0;  // of the first element in the storage, in elements
  int64_t extent = 0;  // elements from the first to the last, both included; 0 if there is none
  std::vector<int64_t> sizes, strides;  // strides in elements
};

/// What limits a tensor.
struct StorageLimits {
  std::function<std::optional<uint64_t>(const std::string& key)>
      bytes;            // of a storage; nothing: there is none
  uint64_t file_bytes;  // a tensor that repeats elements may not be larger than the whole file
};

/// Whether a value is a tensor or a parameter.
bool is_tensor(const Pickle& pickle, PickleRef ref);

/// The layout of a value that is_tensor(). Throws FileError; `where` starts the message.
TensorLayout tensor_layout(const Pickle& pickle, PickleRef ref, const StorageLimits& limits,
                           const std::string& where);

}  // namespace dtk
