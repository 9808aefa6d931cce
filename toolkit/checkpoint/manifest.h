// manifest.json: what a complete checkpoint consists of.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "toolkit/core/errors.h"
#include "toolkit/io/file_system.h"

namespace dtk {

inline constexpr std::string_view manifest_name = "manifest.json";

struct ManifestFile {
  std::string name;  // a plain file name inside the checkpoint's folder
  uint64_t bytes;
  std::string sha256;  // 64 lower-case hexadecimal digits
};

struct CheckpointManifest {
  int64_t step = 0;
  std::vector<ManifestFile> files;
};

/// A manifest that is not what this program wrote, other than by a newer version.
struct DamagedManifest : FileError {
  using FileError::FileError;
};

std::string manifest_text(const CheckpointManifest& manifest);

/// Throws DamagedManifest, or FileError for a newer version; `path` is for messages.
CheckpointManifest parse_manifest(std::string_view text, const std::string& path);

/// Whether `name` names a file inside a folder, not a path out of it.
bool is_plain_file_name(const std::string& name);

/// Whether `folder` has a manifest whose files exist in the right sizes. Throws FileError if that cannot be
/// told: unreadable, or a manifest of a newer version.
bool is_complete_checkpoint(FileSystem& files, const std::filesystem::path& folder);

}  // namespace dtk
