// A file's bytes in the address space: pages come from the disk when they are touched, and the system may
// drop them again, so a file larger than the memory can be read from everywhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace dtk {

/// Read-only. The file must not be made shorter while it is mapped: the system ends a process that touches
/// bytes that are no longer there. Reading from several threads is safe.
class MappedFile {
 public:
  /// Throws DataError naming the file if there is none, if it is no regular file or cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(start_), size_}; }

 private:
  void* start_ = nullptr;
  size_t size_ = 0;
};

}  // namespace dtk
