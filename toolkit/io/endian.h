// Numbers as files hold them, on any machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtk {

/// Least significant byte first: the number that `bytes`, at most 8, hold.
inline uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

/// The same of the `Bytes` bytes at `data`.
template <size_t Bytes>
uint64_t little_endian(const char* data) {
  return little_endian(std::string_view(data, Bytes));
}

/// Most significant byte first: the number that `bytes`, at most 8, hold.
inline uint64_t big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

/// Appends the lowest `bytes` bytes of `value`.
inline void append_little_endian(std::string& text, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace dtk
