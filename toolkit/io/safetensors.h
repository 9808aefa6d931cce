// Files of named tensors in the safetensors format: 8 bytes of header length (little-endian), a JSON header
// {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {string: string}}, data.
//
// Known dtypes: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL. A file is data from outside: whatever it claims is
// checked before memory is reserved for it.
//
// Written by hand because Debian has no C++ library for the format.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "toolkit/io/file_system.h"
#include "toolkit/io/stored_tensor.h"

namespace dtk {

/// Writes tensors of any device and layout, one at a time: at most one tensor is held as a copy, and only if
/// it is not contiguous on the CPU. Wider dtypes come first (which aligns all data to its element size),
/// names ascend within a width, so equal states give equal bytes whatever their order. Does not sync or
/// close. Throws std::invalid_argument for a name given twice or reserved, a dtype that is not known, a name
/// that is not UTF-8; FileError from `out`.
void write_safetensors(WritableFile& out, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});
/// The same of tensors that are given some values at a time.
void write_given_tensors(WritableFile& out, const std::vector<WrittenTensor>& tensors,
                         const std::map<std::string, std::string>& metadata = {});
/// What process `to` needs of this one, which writes the same tensors meanwhile.
void send_given_tensors(int64_t to, const std::vector<WrittenTensor>& tensors);
/// The tensors in the order of a file, in lists of at most `max_bytes` of values, or of one that has more.
/// Throws as write_safetensors().
std::vector<std::vector<WrittenTensor>> in_parts(const std::vector<WrittenTensor>& tensors,
                                                 uint64_t max_bytes);

/// The tensors of a file, to be read one at a time, straight into their memory; the header is checked as a
/// whole. `files` must outlive their readers. Throws FileError naming the file and what is wrong with it.
std::vector<StoredTensor> open_safetensors(FileSystem& files, const std::filesystem::path& path);

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
