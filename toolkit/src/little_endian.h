// Numbers as files hold them, least significant byte first, on any machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace dtk {

/// The number in the `Bytes` bytes at `data`.
template <size_t Bytes>
uint64_t little_endian(const char* data) {
  uint64_t value = 0;
  for (size_t i = 0; i < Bytes; ++i) value |= uint64_t{static_cast<unsigned char>(data[i])} << (8 * i);
  return value;
}

/// Appends the lowest `bytes` bytes of `value`.
inline void append_little_endian(std::string& text, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace dtk
