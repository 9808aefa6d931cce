// SHA-256 as in FIPS 180-4, for the hashes of checkpoint manifests.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtk {

/// Hashes a message given in pieces of any size. Not thread-safe.
class Sha256 {
 public:
  void update(const void* data, size_t bytes);
  /// The digest in lower-case hexadecimal, 64 characters. Ends the message: update() must not follow.
  std::string hex_digest();

 private:
  static constexpr size_t block_bytes = 64;

  void hash_block(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, block_bytes> pending_ = {};  // the last message_bytes_ % block_bytes bytes
  uint64_t message_bytes_ = 0;
};

/// Digest of one message, 64 hexadecimal characters.
std::string sha256_hex(std::string_view message);

}  // namespace dtk
