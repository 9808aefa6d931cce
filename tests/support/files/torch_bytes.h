// Files of torch.save byte by byte, for tests to get wrong.
#pragma once
#include <string>
#include <vector>

#include "support/files/zip_bytes.h"

namespace dtk::test {

inline std::string pickled(const std::string& text) {
  return "X" + little_endian(text.size(), 4) + text;
}
inline std::string pickled(int64_t value) {
  return "\x8a\x08" + little_endian(static_cast<uint64_t>(value), 8);
}
inline std::string pickled(const std::vector<int64_t>& values) {
  std::string text = "(";
  for (const int64_t value : values) text += pickled(value);
  return text + "t";
}

/// What torch.save says of a tensor.
struct PickledTensor {
  std::string storage = "0", storage_class = "ctorch\nFloatStorage\n";
  int64_t elements = 4, offset = 0;
  std::vector<int64_t> sizes = {2, 2}, strides = {2, 1};
  std::string function = "_rebuild_tensor_v2", last = {};  // `last`: arguments behind the hooks
};

inline std::string pickled(const PickledTensor& t) {
  return "ctorch._utils\n" + t.function + "\n((" + pickled(std::string("storage")) + t.storage_class +
         pickled(t.storage) + pickled(std::string("cpu")) + pickled(t.elements) + "tQ" + pickled(t.offset) +
         pickled(t.sizes) + pickled(t.strides) + "\x89" + "ccollections\nOrderedDict\n)R" + t.last + "tR";
}

struct PickledItem {
  std::string key, value;  // the value's pickle
};

/// A dict as a pickle without its end.
inline std::string pickled(const std::vector<PickledItem>& items) {
  std::string text = "}(";
  for (const PickledItem& item : items) text += pickled(item.key) + item.value;
  return text + "u";
}

/// The whole file: `pickle` without its end, and storages "0", "1", ...
inline std::string torch_file_bytes(const std::string& pickle, const std::vector<std::string>& storages,
                                    std::vector<ZipPart> more = {}) {
  std::vector<ZipPart> parts = {{.name = "m/data.pkl", .data = "\x80\x02" + pickle + "."}};
  for (size_t i = 0; i < storages.size(); ++i) {
    parts.push_back({.name = "m/data/" + std::to_string(i), .data = storages[i]});
  }
  parts.insert(parts.end(), more.begin(), more.end());
  return zip_bytes(parts);
}

}  // namespace dtk::test
