// Safetensors files read as a whole.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "support/files/memory_file_system.h"
#include "toolkit/io/safetensors.h"

namespace dtk::test {

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // in the order of their data in the file
  std::map<std::string, std::string> metadata;
};

/// Throws as open_safetensors().
inline SafetensorsFile read_safetensors(FileSystem& files, const std::filesystem::path& path) {
  SafetensorsFile file;
  for (const StoredTensor& entry : open_safetensors(files, path))
    file.tensors.push_back({entry.name, entry.read()});
  const auto read = [&](uint64_t offset, void* data, size_t bytes) {
    files.read_into(path, offset, data, bytes);
  };
  file.metadata = read_safetensors_header(read, files.size(path), path.string()).metadata;
  return file;
}

/// As read_safetensors() of a file "w" with that content.
inline SafetensorsFile read_safetensors_bytes(const std::string& bytes) {
  MemoryFileSystem files;
  files.create("w")->write(bytes.data(), bytes.size());
  return read_safetensors(files, "w");
}

}  // namespace dtk::test
