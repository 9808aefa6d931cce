// The world of a rank that follows: it reads what the leader reads, says nothing, and writes nothing but its
// share of checkpoints.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/forgotten_file.h"
#include "toolkit/run/run.h"

namespace dtk {

/// Reads from `files`; what is written is forgotten. From the first change on the run's folder is an empty
/// one, for the leader is changing it.
class FollowerFiles final : public FileSystem {
 public:
  FollowerFiles(FileSystem& files, std::filesystem::path run) : files_(files), run_(std::move(run)) {}

  std::unique_ptr<WritableFile> create(const Path&) override {
    return changed(std::make_unique<ForgottenFile>());
  }
  std::unique_ptr<WritableFile> append(const Path&) override {
    return changed(std::make_unique<ForgottenFile>());
  }
  using FileSystem::read;
  std::string read(const Path& path, uint64_t most) override {
    refuse_hidden(path);
    return files_.read(path, most);
  }
  void read_into(const Path& path, uint64_t offset, void* data, size_t bytes) override {
    refuse_hidden(path);
    files_.read_into(path, offset, data, bytes);
  }
  bool exists(const Path& path) override { return !is_hidden(path) && files_.exists(path); }
  bool is_folder(const Path& path) override { return !is_hidden(path) && files_.is_folder(path); }
  uint64_t size(const Path& path) override {
    refuse_hidden(path);
    return files_.size(path);
  }
  std::vector<std::string> list(const Path& folder) override {
    return is_hidden(folder) ? std::vector<std::string>() : files_.list(folder);
  }
  void create_directories(const Path&) override { changed_ = true; }
  void rename(const Path&, const Path&) override { changed_ = true; }
  void remove_all(const Path&) override { changed_ = true; }
  std::unique_ptr<FileLock> try_lock(const Path&) override { return std::make_unique<FileLock>(); }
  void sync_directory(const Path&) override {}
  bool keeps_content() const override { return false; }

 private:
  std::unique_ptr<WritableFile> changed(std::unique_ptr<WritableFile> file) {
    changed_ = true;
    return file;
  }
  bool is_hidden(const Path& path) const {
    if (!changed_) return false;
    const Path inside = std::filesystem::absolute(path).lexically_normal().lexically_relative(
        std::filesystem::absolute(run_).lexically_normal());
    return !inside.empty() && *inside.begin() != "..";
  }
  void refuse_hidden(const Path& path) const {
    if (is_hidden(path))
      throw FileError(path.string() + ": the leader's file, which is none of a follower's");
  }

  FileSystem& files_;
  const Path run_;
  bool changed_ = false;
};

class SilentObserver final : public RunObserver {
 public:
  void message(const std::string&) override {}
  void progress(const Progress&) override {}
  void working(const std::string&, int64_t, int64_t) override {}
};

}  // namespace dtk
