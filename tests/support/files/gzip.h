// Gzip, deflated and IDX bytes for tests.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace dtk::test {

/// `window_bits` as zlib's deflateInit2() takes them: they choose the header around the deflated bytes.
inline std::string packed_by_zlib(const std::string& plain, int window_bits) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, window_bits, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
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

/// One gzip member.
inline std::string gzip(const std::string& plain) {
  return packed_by_zlib(plain, 15 + 16);
}

/// Deflated without a header around it, as zip archives have it.
inline std::string deflated(const std::string& plain) {
  return packed_by_zlib(plain, -15);
}

/// Big-endian 32-bit numbers: an IDX header.
inline std::string big_endian(std::initializer_list<uint32_t> numbers) {
  std::string bytes;
  for (const uint32_t number : numbers) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(number >> shift & 0xff));
  }
  return bytes;
}

}  // namespace dtk::test
