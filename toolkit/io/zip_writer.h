// Writes zip archives front to back.
//
// Written by hand because PyTorchStreamWriter puts records of its own into every archive, which .npz files
// must not have, and one writer for both kinds of files is less than two.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "toolkit/io/file_system.h"

namespace dtk {

/// The data of entries that are stored as they are begin at a multiple of 64 bytes, so that whoever maps the
/// file finds numbers aligned. Sizes are always of 64 bits (zip64), and all entries have the date 1980-01-01:
/// equal contents give equal bytes.
class ZipWriter {
 public:
  /// `out` must outlive this.
  explicit ZipWriter(WritableFile& out) : out_(out) {}

  /// Adds an entry; names of at most 65,535 bytes, each once. Throws FileError from `out`.
  void add(const std::string& name, const void* data, size_t bytes);
  /// Adds an entry that is deflated as zlib does by default (level 6).
  void add_deflated(const std::string& name, const void* data, size_t bytes);
  /// Writes the directory; nothing can be added afterwards.
  void finish();

 private:
  struct Entry {
    std::string name;
    uint64_t header_at, bytes, packed;
    uint32_t crc32;
    uint16_t method;
  };
  void write_entry(const Entry& entry, size_t padding, const void* packed);
  void write(const std::string& text);
  std::string directory() const;

  WritableFile& out_;
  uint64_t written_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace dtk
