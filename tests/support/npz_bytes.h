// .npz files byte by byte, for tests to damage.
#pragma once
#include <ATen/core/Tensor.h>
#include <dtk/toolkit/npy.h>
#include <zlib.h>

#include <stdexcept>
#include <string>

#include "support/memory_file_system.h"
#include "support/zip_bytes.h"

namespace dtk::test {

inline std::string npy_bytes(const at::Tensor& tensor) {
  MemoryFileSystem files;
  write_npy(*files.create("/a.npy"), tensor);
  return files.read("/a.npy");
}

/// Deflated without a header around it, as zip archives have it.
inline std::string deflated(const std::string& plain) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2 failed");
  }
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int status = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw std::runtime_error("deflate failed");
  return packed;
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
