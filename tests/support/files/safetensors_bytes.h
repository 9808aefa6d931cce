// Safetensors files that are in memory.
#pragma once
#include <string>

#include "support/files/memory_file_system.h"
#include "toolkit/io/safetensors.h"

namespace dtk::test {

/// As read_safetensors() of a file "w" with that content.
inline SafetensorsFile read_safetensors_bytes(const std::string& bytes) {
  MemoryFileSystem files;
  files.create("w")->write(bytes.data(), bytes.size());
  return read_safetensors(files, "w");
}

}  // namespace dtk::test
