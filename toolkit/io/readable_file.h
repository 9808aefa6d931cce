// A file that is read in parts, at any offset.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "toolkit/io/file_system.h"

namespace dtk {

/// Errors are FileError naming the path. For one thread.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size() = 0;
  /// Fills `data` with `bytes` bytes from byte `offset` on; a file that ends earlier is an error.
  virtual void read_into(uint64_t offset, void* data, size_t bytes) = 0;
};

/// Opens `path` on this machine once: always the same file, whatever its name stands for later.
std::unique_ptr<ReadableFile> open_for_reading(const std::filesystem::path& path);

/// `path` of `files`, which looks the name up for every read: it may be replaced meanwhile.
std::unique_ptr<ReadableFile> read_by_name(FileSystem& files, const std::filesystem::path& path);

}  // namespace dtk
