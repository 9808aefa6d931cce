// A checkpoint of a run that computed nothing holds whatever lay in memory, which no other run may load.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "toolkit/checkpoint/manifest.h"
#include "toolkit/io/sha256.h"

namespace dtk::test {

/// Makes all values of weights, moments and averages 0; the manifest says so.
inline void make_finite(FileSystem& files, const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / manifest_name;
  CheckpointManifest manifest = parse_manifest(files.read(path), path.string());
  const auto write = [&](const std::filesystem::path& file, const std::string& content) {
    files.create(file)->write(content.data(), content.size());
  };
  for (ManifestFile& file : manifest.files) {
    if (!file.name.ends_with(".safetensors")) continue;
    std::string content = files.read(checkpoint / file.name);
    uint64_t header = 0;
    std::memcpy(&header, content.data(), sizeof header);
    std::fill(content.begin() + static_cast<std::ptrdiff_t>(sizeof header + header), content.end(), '\0');
    write(checkpoint / file.name, content);
    Sha256 hash;
    hash.update(content.data(), content.size());
    file.sha256 = hash.hex_digest();
  }
  write(path, manifest_text(manifest));
}

}  // namespace dtk::test
