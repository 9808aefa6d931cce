// Inputs as files, for readers that open what they read.
#pragma once
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "toolkit/core/errors.h"
#include "toolkit/io/file_system.h"

namespace dtk::fuzz {

/// An opened file in memory; `bytes` must outlive it.
class BytesFile final : public ReadableFile {
 public:
  explicit BytesFile(std::string_view bytes) : bytes_(bytes) {}
  uint64_t size() override { return bytes_.size(); }
  void read_into(uint64_t offset, void* data, size_t bytes) override {
    if (offset > bytes_.size() || bytes > bytes_.size() - offset) throw FileError("input: it ends too early");
    if (bytes > 0) std::memcpy(data, bytes_.data() + offset, bytes);
  }

 private:
  const std::string_view bytes_;
};

/// A folder in memory, gone at the end of the process.
class InputFolder {
 public:
  InputFolder() : path_("/dev/shm/dtk-fuzz-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;
  ~InputFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << content;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_;
};

inline const InputFolder& input_folder() {
  static const InputFolder folder;
  return folder;
}

}  // namespace dtk::fuzz
