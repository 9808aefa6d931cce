#include "toolkit/io/readable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

class OpenedFile : public ReadableFile {
 public:
  explicit OpenedFile(const Path& path) : path_(path), number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (number_ < 0) fail("read");
  }
  ~OpenedFile() override {
    if (number_ >= 0) ::close(number_);
  }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;

  uint64_t size() override {
    struct stat status = {};
    if (::fstat(number_, &status) != 0) fail("get the size of");
    return static_cast<uint64_t>(status.st_size);
  }

  void read_into(uint64_t offset, void* data, size_t bytes) override {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t got =
          ::pread(number_, static_cast<char*>(data) + done, bytes - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("read");
      if (got == 0) {
        throw FileError("cannot read " + path_.string() + ": bytes " + std::to_string(offset) + " to " +
                        std::to_string(offset + bytes) + " were wanted, the file ends " +
                        std::to_string(bytes - done) + " bytes too early");
      }
      done += static_cast<size_t>(got);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& operation) const {
    const std::error_code reason(errno, std::generic_category());
    throw FileError("cannot " + operation + " " + path_.string() + ": " + reason.message());
  }

  const Path path_;
  const int number_;
};

class FileByName : public ReadableFile {
 public:
  FileByName(FileSystem& files, const Path& path) : files_(files), path_(path) {}
  uint64_t size() override { return files_.size(path_); }
  void read_into(uint64_t offset, void* data, size_t bytes) override {
    files_.read_into(path_, offset, data, bytes);
  }

 private:
  FileSystem& files_;
  const Path path_;
};

}  // namespace

std::unique_ptr<ReadableFile> open_for_reading(const Path& path) {
  return std::make_unique<OpenedFile>(path);
}

std::unique_ptr<ReadableFile> read_by_name(FileSystem& files, const Path& path) {
  return std::make_unique<FileByName>(files, path);
}

}  // namespace dtk
