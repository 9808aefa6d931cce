#include "toolkit/io/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

[[noreturn]] void fail(const std::string& operation, const Path& path, std::error_code reason) {
  throw FileError(fmt::format("cannot {} {}: {}", operation, shown(path), reason.message()));
}

[[noreturn]] void fail_with_errno(const std::string& operation, const Path& path) {
  fail(operation, path, std::error_code(errno, std::generic_category()));
}

class Descriptor {
 public:
  Descriptor(const Path& path, int flags, const std::string& operation)
      : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (number_ < 0) fail_with_errno(operation, path);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

void check_regular(const struct stat& status, const Path& path) {
  if (S_ISREG(status.st_mode)) return;
  throw FileError(
      fmt::format("cannot read {}: it is {}; give a regular file", shown(path), kind_of(status.st_mode)));
}

uint64_t size_of(const Descriptor& file, const Path& path) {
  struct stat status = {};
  if (::fstat(file.number(), &status) != 0) fail_with_errno("read", path);
  check_regular(status, path);
  return static_cast<uint64_t>(status.st_size);
}

// Opening a pipe would wait for somebody who writes to it.
constexpr int kReadRegular = O_RDONLY | O_NONBLOCK | O_NOCTTY;

class PosixFile : public WritableFile {
 public:
  PosixFile(Path path, int flags, const std::string& operation)
      : path_(std::move(path)), descriptor_(path_, flags | O_WRONLY | O_CREAT, operation) {}

  void write(const void* data, size_t bytes) override {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(descriptor_.number(), next, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_with_errno("write", path_);
      next += written;
      bytes -= static_cast<size_t>(written);
    }
  }

  void sync() override {
    if (::fsync(descriptor_.number()) != 0) fail_with_errno("sync", path_);
  }

  void close() override {
    if (::close(descriptor_.release()) != 0) fail_with_errno("close", path_);
  }

 private:
  const Path path_;
  Descriptor descriptor_;
};

/// Two descriptors of one process exclude each other as those of two processes do.
class PosixLock : public FileLock {
 public:
  PosixLock(const Path& path, int flags) : descriptor_(path, flags, "open") {}

  bool try_take(const Path& path, bool may_lack_locks = false) {
    while (::flock(descriptor_.number(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return false;
      // NFS locks what is open for writing only, and no folder is.
      if (may_lack_locks && (errno == EBADF || errno == ENOLCK || errno == EOPNOTSUPP)) return true;
      if (errno != EINTR) fail_with_errno("lock", path);
    }
    return true;
  }

 private:
  Descriptor descriptor_;
};

class OpenedFile : public ReadableFile {
 public:
  explicit OpenedFile(const Path& path) : path_(path), descriptor_(path, kReadRegular, "read") {
    size_of(descriptor_, path_);
  }

  uint64_t size() override { return size_of(descriptor_, path_); }

  void read_into(uint64_t offset, void* data, size_t bytes) override {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t got = ::pread(descriptor_.number(), static_cast<char*>(data) + done, bytes - done,
                                  static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_with_errno("read", path_);
      if (got == 0) {
        throw FileError(
            fmt::format("cannot read {}: bytes {} to {} were wanted, the file ends {} bytes too early",
                        shown(path_), offset, offset + bytes, bytes - done));
      }
      done += static_cast<size_t>(got);
    }
  }

 private:
  const Path path_;
  const Descriptor descriptor_;
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

/// What is left of a file, `expected` bytes, or fewer or more: of a pipe and of what is in /proc no size is
/// known.
std::string read_rest(const Descriptor& file, const Path& path, uint64_t expected, uint64_t most) {
  constexpr uint64_t min_chunk = uint64_t{1} << 16;
  std::string content;
  // One byte more than the size shows the end at once.
  for (uint64_t chunk = std::min(std::max(min_chunk, expected + 1), most + 1);; chunk = min_chunk) {
    const size_t start = content.size();
    content.resize(start + chunk);
    const ssize_t got = ::read(file.number(), content.data() + start, chunk);
    content.resize(start + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno != EINTR) fail_with_errno("read", path);
    if (got == 0) return content;
    if (content.size() > most)
      throw FileError(
          fmt::format("cannot read {}: it has more than {} bytes, the most that is read of such a file",
                      shown(path), most));
  }
}

/// A file of data that became shorter than its header said when it was opened is damaged data.
class DataFile : public ReadableFile {
 public:
  explicit DataFile(const Path& path) : file_(opened(path)) {}
  uint64_t size() override { return file_->size(); }
  void read_into(uint64_t offset, void* data, size_t bytes) override try {
    file_->read_into(offset, data, bytes);
  } catch (const FileError& error) {
    throw DataError(error.what() + std::string("; it must not be changed while it is used"));
  }

 private:
  static std::unique_ptr<ReadableFile> opened(const Path& path) try {
    return open_for_reading(path);
  } catch (const FileError& error) {
    throw DataError(error.what() + std::string("; check the path"));
  }

  const std::unique_ptr<ReadableFile> file_;
};

class PosixFileSystem : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const Path& path) override {
    return std::make_unique<PosixFile>(path, O_TRUNC | O_NOFOLLOW, "create");
  }

  std::unique_ptr<WritableFile> append(const Path& path) override {
    return std::make_unique<PosixFile>(path, O_APPEND | O_NOFOLLOW, "open");
  }

  using FileSystem::read;
  std::string read(const Path& path, uint64_t most) override {
    const Descriptor file(path, kReadRegular, "read");
    return read_rest(file, path, size_of(file, path), most);
  }

  std::string read_given(const Path& path, uint64_t most) override {
    return read_rest(Descriptor(path, O_RDONLY | O_NOCTTY, "read"), path, 0, most);
  }

  void read_into(const Path& path, uint64_t offset, void* data, size_t bytes) override {
    OpenedFile(path).read_into(offset, data, bytes);
  }

  bool exists(const Path& path) override {
    struct stat status = {};
    if (::stat(path.c_str(), &status) == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR) fail_with_errno("look up", path);
    return false;
  }

  bool is_folder(const Path& path) override {
    struct stat status = {};
    return exists(path) && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  }

  uint64_t size(const Path& path) override {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) fail_with_errno("get the size of", path);
    check_regular(status, path);
    return static_cast<uint64_t>(status.st_size);
  }

  std::vector<std::string> list(const Path& folder) override {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entry(folder, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error && error != std::errc::no_such_file_or_directory) fail("list", folder, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  void create_directories(const Path& folder) override {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail("create the folder", folder, error);
  }

  void rename(const Path& from, const Path& to) override {
    // What is replaced may be a device or a link of somebody else's, and root is refused nothing.
    struct stat status = {};
    const bool exists = ::lstat(to.c_str(), &status) == 0;
    if (exists && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
      throw FileError(fmt::format("cannot replace {}: it is {}; name a regular file or a new one", shown(to),
                                  kind_of(status.st_mode)));
    }
    if (::rename(from.c_str(), to.c_str()) != 0) fail_with_errno("rename " + from.string() + " to", to);
  }

  void remove_all(const Path& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) fail("remove", path, error);
  }

  std::unique_ptr<FileLock> try_lock(const Path& path) override {
    auto lock = std::make_unique<PosixLock>(path, O_RDWR | O_CREAT | O_NOFOLLOW);
    if (!lock->try_take(path)) return nullptr;
    return lock;
  }

  std::unique_ptr<FileLock> try_lock_folder(const Path& path) override {
    auto lock = std::make_unique<PosixLock>(path, O_RDONLY | O_DIRECTORY);
    if (!lock->try_take(path, /*may_lack_locks=*/true)) return nullptr;
    return lock;
  }

  void sync_directory(const Path& folder) override {
    const Path opened = folder.empty() ? Path(".") : folder;
    const Descriptor directory(opened, O_RDONLY | O_DIRECTORY, "sync the folder");
    if (::fsync(directory.number()) != 0) fail_with_errno("sync the folder", opened);
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static auto* const files = new PosixFileSystem;
  return *files;
}

std::unique_ptr<ReadableFile> open_for_reading(const Path& path) {
  return std::make_unique<OpenedFile>(path);
}

std::unique_ptr<ReadableFile> open_data(const Path& path) {
  return std::make_unique<DataFile>(path);
}

std::unique_ptr<ReadableFile> read_by_name(FileSystem& files, const Path& path) {
  return std::make_unique<FileByName>(files, path);
}

Path without_slash(const Path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

Path parent_of(const Path& path) {
  return path.has_parent_path() ? path.parent_path() : Path(".");
}

void write_file_atomically(FileSystem& files, const Path& path, std::string_view content) {
  write_file_atomically(files, path, [&](WritableFile& file) { file.write(content.data(), content.size()); });
}

void write_file_atomically(FileSystem& files, const Path& path,
                           const std::function<void(WritableFile&)>& write_content) {
  const Path temporary = path.string() + ".tmp";
  const std::unique_ptr<WritableFile> file = files.create(temporary);
  try {
    write_content(*file);
    file->sync();
    file->close();
    files.rename(temporary, path);
  } catch (...) {
    try {  // on a full disk it would take what little is left
      files.remove_all(temporary);
    } catch (const FileError&) {
    }
    throw;
  }
  files.sync_directory(path.parent_path());
}

}  // namespace dtk
