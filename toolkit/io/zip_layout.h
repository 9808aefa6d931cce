// The fixed parts of a zip archive, for the reader and the writer.
#pragma once
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

inline uint16_t zip_u16(const char* data) {
  return static_cast<uint16_t>(little_endian<2>(data));
}
inline uint32_t zip_u32(const char* data) {
  return static_cast<uint32_t>(little_endian<4>(data));
}
inline uint64_t zip_u64(const char* data) {
  return little_endian<8>(data);
}

}  // namespace dtk
