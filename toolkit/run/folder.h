// Who may train into a run's folder, and from which checkpoint.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/checkpoint/find.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/run/run.h"

namespace dtk {

/// What a run goes on from.
struct ResumePoint {
  Checkpoint checkpoint;
  LoadedConfig written;              // of the run that saved it
  std::optional<DataIdentity> data;  // absent in one of an earlier version
};
/// Reads the checkpoint once, to compare its hashes; of several ranks each does so with its share. Throws
/// FileError if it is damaged. `files` must outlive the result.
ResumePoint open_resume_point(FileSystem& files, const std::filesystem::path& checkpoint,
                              const Ranks* ranks = nullptr);

/// Throws ConfigError at each rank whose folder train.out, `out`, is not the one that the leader writes into.
/// Makes the folder where it is not there.
void check_shared(const std::filesystem::path& out, FileSystem& files, Ranks& ranks);

/// The folder train.out for one run. Nothing stays in it before claim(), so that a start that is refused
/// is not in the way of the next; a folder that is in use already is locked from the beginning.
class RunFolder {
 public:
  /// `resume`: the checkpoint that the run goes on from, empty for a new one, which is not read: a run that
  /// trains into its folder may be removing it. All must outlive this. Throws ConfigError if another process
  /// trains into the folder.
  RunFolder(const LoadedConfig& loaded, const std::filesystem::path& resume, const RunWorld& world);

  /// `resume`: that checkpoint, null for a new run; must outlive this. Throws ConfigError if the folder is
  /// not free for this run or if `resume` does not fit it.
  void check(const ResumePoint* resume);

  /// Makes the folder this run's, which writes config.toml and data.json. Returns what the user should hear
  /// about it.
  std::vector<std::string> claim(const DataIdentity& data);
  /// config.toml again, once a claimed run goes on with another configuration.
  void write_config() const;

 private:
  struct PassedOver {
    std::filesystem::path folder;
    std::string damage;
  };

  void take_lock();
  void check_free() const;
  void check_resume(const ResumePoint& resume);
  void check_branch(const Checkpoint& resumed);
  bool holds_only_a_run(const std::vector<std::string>& names, bool or_samples) const;
  bool came_to_nothing(const std::vector<std::string>& names) const;
  std::vector<std::string> names_in_it() const;
  std::string elsewhere() const;

  const LoadedConfig& loaded_;
  FileSystem& files_;
  const std::filesystem::path out_;
  const bool continued_;  // goes on in the folder that holds the checkpoint
  const bool takes_over_;
  std::unique_ptr<FileLock> lock_, folder_lock_;
  std::vector<PassedOver> passed_over_;
};

}  // namespace dtk
