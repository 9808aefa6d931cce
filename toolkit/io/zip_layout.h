// The fixed parts of a zip archive, for the reader and the writer.
#pragma once
#include <zlib.h>

#include <cstddef>
#include <cstdint>

#include "toolkit/io/endian.h"

namespace dtk {

inline constexpr uint32_t zip_local_signature = 0x04034b50;
inline constexpr uint32_t zip_central_signature = 0x02014b50;
inline constexpr uint32_t zip_end_signature = 0x06054b50;
inline constexpr uint32_t zip64_end_signature = 0x06064b50;
inline constexpr uint32_t zip64_locator_signature = 0x07064b50;

// Sizes without names, extra fields and comments.
inline constexpr size_t zip_local_bytes = 30;
inline constexpr size_t zip_central_bytes = 46;
inline constexpr size_t zip_end_bytes = 22;
inline constexpr size_t zip64_end_bytes = 56;
inline constexpr size_t zip64_locator_bytes = 20;

// In a field of 16 or 32 bits: the value is in the zip64 record instead.
inline constexpr uint16_t zip_elsewhere_16 = 0xffff;
inline constexpr uint32_t zip_elsewhere_32 = 0xffffffff;
inline constexpr uint16_t zip64_extra_id = 1;

inline constexpr int raw_window_bits = -15;  // no header and no checksum of zlib's around the data

// Methods of compression.
inline constexpr uint16_t zip_stored = 0, zip_deflated = 8;

inline uint16_t zip_u16(const char* data) {
  return static_cast<uint16_t>(little_endian<2>(data));
}
inline uint32_t zip_u32(const char* data) {
  return static_cast<uint32_t>(little_endian<4>(data));
}
inline uint64_t zip_u64(const char* data) {
  return little_endian<8>(data);
}

/// The CRC-32 of `bytes` more bytes, after that of those before, or 0.
inline uint32_t zip_crc(uint32_t before, const void* data, size_t bytes) {
  return bytes == 0 ? before : static_cast<uint32_t>(crc32_z(before, static_cast<const Bytef*>(data), bytes));
}

}  // namespace dtk
