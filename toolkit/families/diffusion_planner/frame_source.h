// Frames of the driving model as batches of a loader, and as the data of a run.
#pragma once
#include <filesystem>

#include "toolkit/config/config_io.h"
#include "toolkit/data/held_out.h"
#include "toolkit/families/diffusion_planner/frames.h"
#include "toolkit/train/model_family.h"

namespace dtk::diffusion_planner {

/// A batch holds the arrays of a FrameBatch in the order of its fields(); those that the frames' layout
/// has not are undefined. A frame is the same in each epoch.
class FrameSource final : public DataSource {
 public:
  /// As Frames opens them; throws the same.
  FrameSource(const std::filesystem::path& folder_or_list, FrameOptions options);

  const Frames& frames() const { return frames_; }

  int64_t size() const override { return frames_.size(); }
  std::string description() const override { return frames_.description(); }
  DataRemarks remarks() const override { return frames_.remarks(); }
  /// The files, by their paths in the folder of the frames or of their list, and their sizes.
  DataIdentity identity() const override;
  Batch allocate(int64_t count, bool pinned) const override;
  /// Unpacks the file right into the batch, and throws as Frames::read().
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const override;

 private:
  const Frames frames_;
};

/// `frames` as a batch of such a source.
Batch batch_of(FrameBatch frames);

/// The tensors of `batch` by their names. Throws std::invalid_argument for another number of them than
/// FrameBatch has.
FrameBatch frame_batch(Batch batch);

/// How the driving model of `config` reads its frames.
FrameOptions frame_options_of(const RunConfig& config);

/// For a folder of .npz files or a JSON list of their paths, as ModelFamily::draft().
std::optional<DataDraft> draft_of_frames(const std::filesystem::path& data);

/// data.frames and data.held_out. Throws ConfigError and DataError.
RunData open_frames(const LoadedConfig& loaded);

/// Frames of the model's shapes, to which nothing is read: their values are anything. How many are
/// held out nobody knows: a batch shows what all of them take, and as many as are to be drawn what their
/// trajectories do.
RunData planned_frames(const RunConfig& config, int64_t samples);

}  // namespace dtk::diffusion_planner
