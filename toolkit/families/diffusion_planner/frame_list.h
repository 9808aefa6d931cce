// Which files the samples of the driving model are in.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace dtk::diffusion_planner {

/// Paths as texts: std::filesystem::path takes several times the memory, and there may be millions.
struct FrameList {
  std::vector<std::string> frames;
  std::filesystem::path list;  // empty for a folder
  int64_t outside = 0;         // entries that lead out of the list's folder, by their path or by a link
  std::string first_outside = {};

  /// Where frame `index` was named, for the beginning of a message: "list.json: entry 3: ", or nothing.
  std::string place(size_t index) const;
};

/// The .npz files of the folder `path`, sorted by name (byte order; names that start with a dot are passed
/// over), or the entries of the JSON list `path` in their order, relative to the folder that the list is in.
/// Whether an entry exists is not looked at; those that lead out of that folder are counted, as whoever wrote
/// the list chooses the files that are read.
///
/// Throws DataError naming the folder or the list: nothing there, a folder without .npz files, a file that is
/// no JSON list of texts, an empty list, an entry that is no path.
FrameList read_frame_list(const std::filesystem::path& path);

}  // namespace dtk::diffusion_planner
