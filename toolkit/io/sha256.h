// SHA-256 by OpenSSL's libcrypto, for the hashes of checkpoint manifests.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

struct evp_md_ctx_st;

namespace dtk {

/// Hashes a message given in pieces of any size. Not thread-safe. Throws std::runtime_error with libcrypto's
/// reason where it cannot hash.
class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t bytes);
  /// The digest in lower-case hexadecimal, 64 characters. Ends the message: update() must not follow.
  std::string hex_digest();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

class FileSystem;
/// Of the first `bytes` bytes of a file. Throws FileError.
std::string sha256_of_file(FileSystem& files, const std::filesystem::path& path, uint64_t bytes);

}  // namespace dtk
