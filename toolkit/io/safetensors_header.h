// The JSON header of a safetensors file, checked as a whole before any tensor is made from it.
//
// Written by hand, upon a JSON parser, because Debian has no C++ library for the format.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtk {

inline constexpr uint64_t safetensors_length_bytes = 8;                // the header length before the header
inline constexpr uint64_t safetensors_max_header_bytes = 100'000'000;  // the format's own limit
inline constexpr std::string_view safetensors_metadata_key = "__metadata__";

/// One tensor: its data are the bytes [begin, end) after the header, exactly shape × element size.
struct TensorEntry {
  std::string name;
  c10::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin;
  uint64_t end;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by ascending begin; together they cover the data without gaps
  std::map<std::string, std::string> metadata;
  uint64_t data_start = 0;  // of the data, in the file
};

/// Copies `bytes` bytes from byte `offset` of a file to `data`.
using ReadRange = std::function<void(uint64_t offset, void* data, size_t bytes)>;

/// Reads and checks the header of a file of `file_bytes` bytes. Throws FileError naming `file`.
SafetensorsHeader read_safetensors_header(const ReadRange& read, uint64_t file_bytes,
                                          const std::string& file);

}  // namespace dtk
