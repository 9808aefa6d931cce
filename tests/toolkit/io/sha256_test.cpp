#include "toolkit/io/sha256.h"

#include <stdio.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "support/catch.h"
#include "support/files/temporary_folder.h"

namespace dtk {
namespace {

std::string sha256_hex(const std::string& message) {
  Sha256 hash;
  hash.update(message.data(), message.size());
  return hash.hex_digest();
}

// Not periodic in the 64 bytes of a block, so a lost or doubled block shows.
std::string bytes_of_length(size_t length) {
  std::string bytes;
  for (size_t i = 0; i < length; ++i) bytes += static_cast<char>(i * 131 % 251);
  return bytes;
}

std::string digest_by_command(const std::filesystem::path& file) {
  FILE* output = popen(("sha256sum " + file.string()).c_str(), "r");
  REQUIRE(output != nullptr);
  std::string digest(64, '\0');
  const size_t got = fread(digest.data(), 1, digest.size(), output);
  pclose(output);
  REQUIRE(got == digest.size());
  return digest;
}

}  // namespace

TEST_CASE("SHA-256 gives the digests of FIPS 180-4", "[sha256]") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 does not depend on how the message is cut", "[sha256]") {
  const std::string message = bytes_of_length(300);
  for (size_t piece = 1; piece <= 130; ++piece) {
    Sha256 hash;
    for (size_t start = 0; start < message.size(); start += piece) {
      hash.update(message.data() + start, std::min(piece, message.size() - start));
    }
    CHECK(hash.hex_digest() == sha256_hex(message));
  }
}

TEST_CASE("SHA-256 agrees with sha256sum at every length around the block size", "[sha256]") {
  if (std::system("command -v sha256sum > /dev/null") != 0) {
    WARN("sha256sum is not installed: compared with the vectors of FIPS 180-4 only");
    return;
  }
  const test::TemporaryFolder folder;
  for (const size_t length : {1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 100'003}) {
    const std::string message = bytes_of_length(length);
    CHECK(sha256_hex(message) == digest_by_command(folder.write("message", message)));
  }
}

}  // namespace dtk
