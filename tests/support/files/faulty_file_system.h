// A file system whose k-th change fails as on a full disk.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/io/file_system.h"

namespace dtk::test {

struct Fault {
  int64_t at = 0;            // which change fails, counted from 1; 0: none
  bool is_final = false;     // all later changes fail too, as after a crash
  bool short_write = false;  // a write that fails has stored the first half of its bytes
};

/// Passes everything on to another file system. Changes are create, append, write, sync, close,
/// create_directories, rename, remove_all, try_lock and sync_directory; reading never fails.
class FaultyFileSystem : public FileSystem {
 public:
  FaultyFileSystem(FileSystem& files, Fault fault) : files_(files), fault_(fault) {}

  int64_t changes() const { return changes_; }  ///< tried so far
  bool has_failed() const { return fault_.at > 0 && changes_ >= fault_.at; }

  std::unique_ptr<WritableFile> create(const Path& path) override {
    change("create", path);
    return std::make_unique<File>(*this, files_.create(path), path);
  }
  std::unique_ptr<WritableFile> append(const Path& path) override {
    change("open", path);
    return std::make_unique<File>(*this, files_.append(path), path);
  }
  using FileSystem::read;
  std::string read(const Path& path, uint64_t most) override { return files_.read(path, most); }
  void read_into(const Path& path, uint64_t offset, void* data, size_t bytes) override {
    files_.read_into(path, offset, data, bytes);
  }
  bool exists(const Path& path) override { return files_.exists(path); }
  bool is_folder(const Path& path) override { return files_.is_folder(path); }
  uint64_t size(const Path& path) override { return files_.size(path); }
  std::vector<std::string> list(const Path& folder) override { return files_.list(folder); }
  void create_directories(const Path& folder) override {
    change("create the folder", folder);
    files_.create_directories(folder);
  }
  void rename(const Path& from, const Path& to) override {
    change("rename " + from.string() + " to", to);
    files_.rename(from, to);
  }
  void remove_all(const Path& path) override {
    change("remove", path);
    files_.remove_all(path);
  }
  std::unique_ptr<FileLock> try_lock(const Path& path) override {
    change("lock", path);
    return files_.try_lock(path);
  }
  void sync_directory(const Path& folder) override {
    change("sync the folder", folder);
    files_.sync_directory(folder);
  }

 private:
  class File : public WritableFile {
   public:
    File(FaultyFileSystem& owner, std::unique_ptr<WritableFile> file, Path path)
        : owner_(owner), file_(std::move(file)), path_(std::move(path)) {}
    void write(const void* data, size_t bytes) override {
      const bool fails_now = owner_.changes_ + 1 == owner_.fault_.at;
      if (fails_now && owner_.fault_.short_write) file_->write(data, bytes / 2);
      owner_.change("write", path_);
      file_->write(data, bytes);
    }
    void sync() override {
      owner_.change("sync", path_);
      file_->sync();
    }
    void close() override {
      owner_.change("close", path_);
      file_->close();
    }

   private:
    FaultyFileSystem& owner_;
    const std::unique_ptr<WritableFile> file_;
    const Path path_;
  };

  void change(const std::string& operation, const Path& path) {
    ++changes_;
    const bool fails = fault_.is_final ? has_failed() : changes_ == fault_.at;
    if (fails) throw FileError("cannot " + operation + " " + path.string() + ": No space left on device");
  }

  FileSystem& files_;
  const Fault fault_;
  int64_t changes_ = 0;
};

}  // namespace dtk::test
