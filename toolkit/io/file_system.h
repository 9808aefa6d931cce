// Every write of the toolkit goes through this seam, so tests can fail any single operation and a planned
// run can write nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtk {

/// A file being written. Data is durable only after sync(); close() must be called, the destructor closes
/// without reporting errors.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void write(const void* data, size_t bytes) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;
};

/// An exclusive lock, held until it is destroyed; the system releases it when the process dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

/// Of a text that this library writes, where nothing tighter is known.
inline constexpr uint64_t max_text_bytes = uint64_t{16} << 20;

/// All operations throw FileError naming the path, the operation and the system's reason.
class FileSystem {
 public:
  using Path = std::filesystem::path;
  virtual ~FileSystem() = default;

  /// Creates or truncates `path`. Here and below a symbolic link of that name is an error.
  virtual std::unique_ptr<WritableFile> create(const Path& path) = 0;
  /// Opens `path` for appending, creating it if needed.
  virtual std::unique_ptr<WritableFile> append(const Path& path) = 0;
  /// The whole of a regular file that has at most `most` bytes: neither a pipe nor a device, whose end may
  /// never come.
  virtual std::string read(const Path& path, uint64_t most) = 0;
  std::string read(const Path& path) { return read(path, max_text_bytes); }
  /// The same for a path that a user named on a command line, which may be a pipe such as bash's <(command):
  /// it is waited for until its end.
  virtual std::string read_given(const Path& path, uint64_t most) { return read(path, most); }
  /// Fills `data` with `bytes` bytes from byte `offset` on; a file that ends earlier is an error.
  virtual void read_into(const Path& path, uint64_t offset, void* data, size_t bytes) = 0;
  virtual bool exists(const Path& path) = 0;
  /// False for a file, and where nothing exists.
  virtual bool is_folder(const Path& path) = 0;
  virtual uint64_t size(const Path& path) = 0;
  /// Names (not paths) of the entries of a folder, sorted; empty if the folder does not exist.
  virtual std::vector<std::string> list(const Path& folder) = 0;
  virtual void create_directories(const Path& folder) = 0;
  /// Replaces `to` atomically when both lie in one folder's file system; only a regular file or a folder is
  /// replaced, no device, pipe or link.
  virtual void rename(const Path& from, const Path& to) = 0;
  /// Removes a file or a whole folder; no error if it does not exist.
  virtual void remove_all(const Path& path) = 0;
  /// Locks the file `path`, creating it if needed; null while somebody else, in any process, holds its lock.
  virtual std::unique_ptr<FileLock> try_lock(const Path& path) = 0;
  /// The same for an existing folder, whose lock nobody can remove; without effect where the file system
  /// knows no locks of folders.
  virtual std::unique_ptr<FileLock> try_lock_folder(const Path&) { return std::make_unique<FileLock>(); }
  /// Makes a rename inside `folder` durable.
  virtual void sync_directory(const Path& folder) = 0;
  /// False in a planned run: what is written is forgotten, so that nobody needs to hash or encode it.
  virtual bool keeps_content() const { return true; }
};

/// The machine's own file system. Never destroyed.
FileSystem& posix_file_system();

/// A file that is read in parts, at any offset. Errors are FileError naming the path.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size() = 0;
  /// Fills `data` with `bytes` bytes from byte `offset` on; a file that ends earlier is an error.
  virtual void read_into(uint64_t offset, void* data, size_t bytes) = 0;
};

/// Opens a regular file on this machine once: always the same file, whatever its name stands for later.
/// Several threads may read from it at once.
std::unique_ptr<ReadableFile> open_for_reading(const std::filesystem::path& path);
/// The same for a file of data: all errors are DataError.
std::unique_ptr<ReadableFile> open_data(const std::filesystem::path& path);

/// `path` of `files`, which looks the name up for every read: it may be replaced meanwhile.
std::unique_ptr<ReadableFile> read_by_name(FileSystem& files, const std::filesystem::path& path);

/// "runs/a/" as "runs/a": they are one folder, and parent_path() takes them for two.
std::filesystem::path without_slash(const std::filesystem::path& folder);

/// The folder that `path` is in: "." of a name alone, where parent_path() has nothing that can be listed.
std::filesystem::path parent_of(const std::filesystem::path& path);

/// Writes `content` to `path` by way of `<path>.tmp`, sync and rename: a reader sees the old content or the
/// new one, also after a crash. Throws FileError; then the old content is still there.
void write_file_atomically(FileSystem& files, const std::filesystem::path& path, std::string_view content);
/// The same for content that `write_content` writes piece by piece; what that throws leaves the old content
/// too.
void write_file_atomically(FileSystem& files, const std::filesystem::path& path,
                           const std::function<void(WritableFile&)>& write_content);

}  // namespace dtk
