// Folders of checkpoints that survive a crash or a full disk at any instant.
//
// A checkpoint is a folder `step-00001234` of safetensors and text files and a manifest.json with the size
// and the SHA-256 of each. Of tensors that take more than a file may hold several files are made, with a list
// (shards.h). It is written as `step-00001234.partial`; the manifest comes last, then the folder
// is renamed, so a folder without the suffix is complete. When a step is saved again, the old folder is
// called `step-00001234.replaced` until the new one is in place. A folder with a checkpoint's name that is
// not whole was damaged later; it is reported, never passed over. This file knows nothing of training.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "toolkit/checkpoint/manifest.h"
#include "toolkit/distributed/ranks.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/stored_tensor.h"

namespace dtk {

struct StepState {
  int64_t step;
  bool complete;  // it can be loaded
};

/// Steps of the checkpoints to remove, ascending: all that are older than the newest `keep` complete ones.
/// Incomplete ones never count as kept, so a series of failed saves cannot push out the last good one.
/// `keep` must be at least 1, otherwise std::invalid_argument.
std::vector<int64_t> steps_to_remove(std::vector<StepState> checkpoints, int64_t keep);

/// Of values; a tensor that has more has a file of its own.
inline constexpr uint64_t kMaxFileBytes = 1'000'000'000;

/// Writes the checkpoints of one folder. One store per folder at a time, or one at each rank of a job: saving
/// removes what an interrupted save left behind. Not thread-safe.
class CheckpointStore {
 public:
  using Path = std::filesystem::path;
  using TensorFiles = std::map<std::string, std::vector<WrittenTensor>>;  // file name -> tensors
  using TextFiles = std::map<std::string, std::string>;                   // file name -> content

  /// Keeps the newest `keep` (at least 1) complete checkpoints. `ranks`: that save together, where there are
  /// several, into a folder that all see. Touches nothing yet; what is given must outlive this.
  CheckpointStore(FileSystem& files, Path folder, int64_t keep, Ranks* ranks = nullptr,
                  uint64_t max_file_bytes = kMaxFileBytes);

  /// Returns the folder of the new checkpoint, durable by then. File names end as given
  /// ("model.safetensors"). A step that exists is replaced. Older checkpoints are removed afterwards by
  /// steps_to_remove(), never the one just saved. All ranks call it with the same names: file p of tensors is
  /// written by rank p mod W, the rest by the leader, which the others do not wait for. Throws FileError,
  /// after which the previous checkpoint is whole, or the new one if only the removal failed;
  /// std::invalid_argument for a negative step or a name that is not a plain file name.
  Path save(int64_t step, const TensorFiles& tensor_files, const TextFiles& text_files);

 private:
  void create_folder();
  void undo_interrupted_saves();
  bool leads() const { return ranks_ == nullptr || ranks_->leads(); }
  void write_partial(int64_t step, const TensorFiles& tensor_files, TextFiles text_files);
  std::vector<ManifestFile> write_tensors(const Path& partial, const TensorFiles& tensor_files,
                                          TextFiles& lists);
  std::vector<ManifestFile> of_all_ranks(const std::vector<std::string>& names,
                                         const std::vector<ManifestFile>& own) const;
  void publish(int64_t step);
  void remove_old(int64_t saved_step);

  FileSystem& files_;
  const Path folder_;
  const int64_t keep_;
  Ranks* const ranks_;
  const uint64_t max_file_bytes_;
};

/// A checkpoint whose files all were what its manifest says when it was opened; of several ranks each its
/// share.
class Checkpoint {
 public:
  int64_t step() const { return step_; }
  FileSystem& files() const { return *files_; }
  const std::filesystem::path& folder() const { return folder_; }
  bool has(const std::string& file) const { return names_.count(file) > 0; }

  /// Whether it has a safetensors file, as it is or cut into several.
  bool has_tensors(const std::string& file) const;
  /// Its tensors, to be read one at a time. Throws FileError, naming the files there are, if it has none
  /// such.
  std::vector<StoredTensor> stored_tensors(const std::string& file) const;
  /// Where these lie. Throws likewise.
  std::vector<std::filesystem::path> paths_of_tensors(const std::string& file) const;
  /// Content of a text file. Throws as stored_tensors().
  std::string text(const std::string& file) const;

 private:
  friend Checkpoint open_checkpoint(FileSystem& files, const std::filesystem::path& folder,
                                    const Ranks* ranks);
  Checkpoint(FileSystem& files, std::filesystem::path folder) : files_(&files), folder_(std::move(folder)) {}
  std::filesystem::path path_of(const std::string& file) const;

  FileSystem* files_;
  std::filesystem::path folder_;
  int64_t step_ = 0;
  std::set<std::string> names_;
};

/// Reads every file once to compare its hash, of several ranks each its share of the files. Throws FileError
/// listing all that is wrong (damage_of()) and naming the newest older checkpoint beside it that is whole, or
/// for a manifest of a newer version. `files` must outlive the result.
Checkpoint open_checkpoint(FileSystem& files, const std::filesystem::path& folder,
                           const Ranks* ranks = nullptr);

/// What is wrong with the folder of a checkpoint, file by file: missing, unreadable, or of another size or
/// content than its manifest says; empty: it is whole. Reads every file once. Throws FileError for a manifest
/// of a newer version, which is no damage.
std::vector<std::string> damage_of(FileSystem& files, const std::filesystem::path& folder);

/// Folders with a checkpoint's name, whole or damaged, by step. A `.replaced` one counts while nothing is in
/// its place.
std::map<int64_t, std::filesystem::path> checkpoints_by_step(FileSystem& files,
                                                             const std::filesystem::path& folder);

/// The last of checkpoints_by_step(). It is not opened: if it is damaged, an older checkpoint in its place
/// would lose work without a word.
std::optional<std::filesystem::path> latest_checkpoint(FileSystem& files,
                                                       const std::filesystem::path& folder);

/// Whether `folder` has the name of a checkpoint, or of a `.replaced` one.
bool has_checkpoint_name(const std::filesystem::path& folder);

/// The step that a user means by "step-9" as by "step-00000009"; empty for other names.
std::optional<int64_t> step_named(const std::string& name);

/// Renames a damaged checkpoint to `step-00001234.damaged`, which no longer is a checkpoint, and returns the
/// new path.
std::filesystem::path set_aside(FileSystem& files, const std::filesystem::path& folder);

}  // namespace dtk
