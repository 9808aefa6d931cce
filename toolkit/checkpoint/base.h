// The weights that a run does not train and does not write again: by which files they are known.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "toolkit/checkpoint/weights.h"

namespace dtk {

/// In a checkpoint whose run has frozen weights of a file.
inline constexpr char kBaseFile[] = "base.json";

struct BaseFile {
  std::string path;  // absolute
  uint64_t bytes = 0;
  std::string sha256;
};

/// What open_weights() was asked for, with all files that it read.
struct BaseWeights {
  std::string path, key;
  std::vector<BaseFile> files;
};

/// Of weights that open_weights() opened; reads their files once. Throws FileError.
BaseWeights base_of(FileSystem& files, const Weights& weights);

std::string base_text(const BaseWeights& base);
/// Throws FileError that begins with `path`: not what base_text() writes.
BaseWeights parse_base(std::string_view text, const std::string& path);

/// Opens them again, once each file is seen to be what it was. Those that are gone from their place are
/// looked for in `folder`, and `base` says then where they are. `place`: a message begins with it; `within`:
/// as WeightsRequest::within. Throws ConfigError for a file that is gone or another, and as open_weights().
Weights open_base(FileSystem& files, BaseWeights& base, const std::filesystem::path& folder,
                  const std::string& place, int within = 0);
/// Where a checkpoint's are looked for besides: its run's folder, as older checkpoints are removed.
std::filesystem::path folder_for_base(const std::filesystem::path& checkpoint);

}  // namespace dtk
