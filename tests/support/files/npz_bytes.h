// .npz files byte by byte, for tests to damage.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "support/files/gzip.h"
#include "support/files/memory_file_system.h"
#include "support/files/zip_bytes.h"
#include "toolkit/io/npy.h"

namespace dtk::test {

inline std::string npy_bytes(const at::Tensor& tensor) {
  MemoryFileSystem files;
  write_npy(*files.create("/a.npy"), tensor);
  return files.read("/a.npy");
}

/// The entry that holds `npy` under `key`, as numpy.savez writes it.
inline ZipPart stored_array(const std::string& key, const std::string& npy) {
  return {.name = key + ".npy", .data = npy};
}

/// The same as numpy.savez_compressed writes it.
inline ZipPart deflated_array(const std::string& key, const std::string& npy) {
  ZipPart part;
  part.name = key + ".npy";
  part.data = deflated(npy);
  part.method = 8;
  part.crc = crc_of(npy);
  part.bytes = npy.size();
  return part;
}

}  // namespace dtk::test
