// A file system in memory that counts what is read of each file.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "support/files/memory_file_system.h"

namespace dtk::test {

class CountingFileSystem final : public MemoryFileSystem {
 public:
  using FileSystem::read;
  std::string read(const Path& path, uint64_t most) override {
    std::string content = MemoryFileSystem::read(path, most);
    bytes_read_[path] += content.size();
    return content;
  }
  void read_into(const Path& path, uint64_t offset, void* data, size_t bytes) override {
    MemoryFileSystem::read_into(path, offset, data, bytes);
    bytes_read_[path] += bytes;
  }

  uint64_t bytes_read(const Path& path) const {
    const auto found = bytes_read_.find(path);
    return found == bytes_read_.end() ? 0 : found->second;
  }
  void start_counting_anew() { bytes_read_.clear(); }

 private:
  std::map<Path, uint64_t> bytes_read_;
};

}  // namespace dtk::test
