#include "toolkit/io/sha256.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <new>
#include <stdexcept>

#include "toolkit/core/format.h"
#include "toolkit/io/file_system.h"

namespace dtk {
namespace {

constexpr size_t digest_bytes = 32;

/// libcrypto's functions return 1 unless they failed.
void check(int status) {
  if (status == 1) return;
  std::array<char, 256> reason{};
  ERR_error_string_n(ERR_get_error(), reason.data(), reason.size());
  throw std::runtime_error(std::string("libcrypto cannot make a SHA-256: ") + reason.data());
}

std::string hex(const std::array<uint8_t, digest_bytes>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  if (!context_) throw std::bad_alloc();
  check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void Sha256::update(const void* data, size_t bytes) {
  check(EVP_DigestUpdate(context_.get(), data, bytes));
}

std::string Sha256::hex_digest() {
  std::array<uint8_t, digest_bytes> digest;
  check(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr));
  return hex(digest);
}

std::string sha256_of_file(FileSystem& files, const std::filesystem::path& path, uint64_t bytes) {
  constexpr uint64_t chunk_bytes = uint64_t{1} << 20;
  Sha256 hash;
  std::string chunk(std::min(bytes, chunk_bytes), '\0');
  for (uint64_t offset = 0; offset < bytes; offset += chunk_bytes) {
    const size_t taken = std::min(chunk_bytes, bytes - offset);
    files.read_into(path, offset, chunk.data(), taken);
    hash.update(chunk.data(), taken);
  }
  return hash.hex_digest();
}

}  // namespace dtk
