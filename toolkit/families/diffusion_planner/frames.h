// Samples of the driving model, read from their files as the training asks for them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "toolkit/data/data_source.h"
#include "toolkit/families/diffusion_planner/batch.h"
#include "toolkit/families/diffusion_planner/frame_list.h"
#include "toolkit/families/diffusion_planner/layout.h"

namespace dtk::diffusion_planner {

struct FrameOptions {
  FrameLayout layout = FrameLayout::version_2;
  FrameSizes sizes = {};
  bool skip_corrupt = false;  // leave out frames that cannot be read, and tell of them (remarks())
  int threads = 1;            // that look through the frames at the start, with skip_corrupt
};

/// A batch of `count` frames of these arrays (frame_arrays()), on the device and in the memory of `where`,
/// not filled.
FrameBatch allocate_frames(const std::vector<NpzArray>& arrays, int64_t count, at::TensorOptions where = {});

/// The frames of a folder or a JSON list (frame_list.h). Immutable after construction; read() may be
/// called from several threads at once. Memory: the list of the paths.
class Frames {
 public:
  using Batch = FrameBatch;

  /// Looks whether every file is there and reads the first one: a wrong preset or list is told before a run
  /// starts. With skip_corrupt every frame is read, once, by `threads` threads: size() has to be known, and
  /// what is left out must not depend on luck.
  ///
  /// Throws DataError naming list, entry and file: what read_frame_list() refuses, an entry that is gone
  /// or no regular file, a first frame that read() refuses; with skip_corrupt only if no frame is left.
  Frames(const std::filesystem::path& folder_or_list, FrameOptions options);

  int64_t size() const { return static_cast<int64_t>(list_.frames.size()); }
  /// One line that begins with the number of frames, e.g. "300 synthetic frames, 320 neighbours, 140 lanes
  /// (list.json)".
  std::string description() const;
  const DataRemarks& remarks() const { return remarks_; }
  const std::string& path(int64_t index) const { return list_.frames.at(static_cast<size_t>(index)); }
  /// The frame's path in the folder that the frames, or their list, are in.
  std::string_view name(int64_t index) const;
  const FrameOptions& options() const { return options_; }

  /// A batch of `count` frames on the CPU, not filled; `pinned`: page-locked.
  Batch allocate(int64_t count, bool pinned = false) const;

  /// Writes frame `index` to row `row` of `batch`, as allocate() made it: what is in the file is unpacked
  /// right there, with no second copy of the frame. Throws std::out_of_range for an index or a row outside,
  /// std::invalid_argument for a batch of other sizes, and DataError naming the file, the array, what was
  /// seen and what is allowed: of another version, without an array, of another dtype or shape, truncated,
  /// hostile or changed (npz.h), with a NaN or an infinity, with a truth value or a turn indicator to predict
  /// that is none. Then the row's values may be anything.
  void read(int64_t index, const Batch& batch, int64_t row) const;

 private:
  void check_is_there(size_t index) const;
  void check_files() const;
  void leave_out_corrupt();
  void read_file(size_t index, const Batch& batch, int64_t row) const;

  const FrameOptions options_;
  const std::vector<NpzArray> arrays_;
  FrameList list_;
  DataRemarks remarks_;
  std::string name_;    // of the folder or the list, for description()
  std::string folder_;  // of the list, with its slash; "" where the frames are a folder's
};

}  // namespace dtk::diffusion_planner
