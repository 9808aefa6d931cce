#include "support/files/gzip.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/gzip.h"

using dtk::DataError;
using dtk::GzipReader;
using dtk::test::error_text;
using dtk::test::gzip;
using dtk::test::TemporaryFolder;

namespace {

/// Reads everything in pieces of `piece` bytes.
std::string read_all(const std::filesystem::path& path, size_t piece) {
  GzipReader reader(path);
  std::string all;
  std::vector<uint8_t> buffer(piece);
  for (;;) {
    const size_t seen = reader.read(buffer.data(), piece);
    all.append(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(seen));
    if (seen < piece) return all;
  }
}

/// Bytes that deflate cannot shrink.
std::string noise(size_t bytes) {
  std::string text;
  uint32_t state = 1;
  while (text.size() < bytes) {
    state = state * 1664525U + 1013904223U;
    text.push_back(static_cast<char>(state >> 24));
  }
  return text;
}

std::string read_error(const std::filesystem::path& path) {
  return error_text<DataError>([&] { read_all(path, 1000); });
}

}  // namespace

TEST_CASE("gzip: plain and packed files read the same, in pieces of any size") {
  const TemporaryFolder folder;
  const std::string content = noise(200'000);
  const auto plain = folder.write("plain", content);
  const auto packed = folder.write("packed", gzip(content));
  for (const size_t piece : {1000U, 65536U, 300'000U}) {
    CHECK(read_all(plain, piece) == content);
    CHECK(read_all(packed, piece) == content);
  }
  CHECK_FALSE(GzipReader(plain).compressed());
  CHECK(GzipReader(packed).compressed());
  CHECK(GzipReader(plain).max_bytes() == 200'000);
  CHECK(GzipReader(packed).max_bytes() >= 200'000);
}

TEST_CASE("gzip: several members and an empty file are data") {
  const TemporaryFolder folder;
  CHECK(read_all(folder.write("two", gzip("first ") + gzip("") + gzip("second")), 4) == "first second");
  CHECK(read_all(folder.write("empty", ""), 4).empty());
}

TEST_CASE("gzip: what follows the last member is ignored") {
  const TemporaryFolder folder;
  for (const std::string& garbage :
       {std::string("garbage"), std::string("\x1f"), std::string(20'000, '\0')}) {
    CHECK(read_all(folder.write("trailing", gzip("data") + garbage), 4) == "data");
  }
}

TEST_CASE("gzip: never unpacks more than was asked for") {
  const TemporaryFolder folder;
  const auto bomb = folder.write("bomb", gzip(std::string(10'000'000, '\0')));
  REQUIRE(std::filesystem::file_size(bomb) < 20'000);
  GzipReader reader(bomb);
  std::vector<uint8_t> buffer(200, 0xee);
  CHECK(reader.read(buffer.data(), 100) == 100);
  CHECK(buffer[99] == 0);
  CHECK(buffer[100] == 0xee);
}

TEST_CASE("gzip: a cut is seen where the data before it just fill a piece") {
  const TemporaryFolder folder;
  const std::string good = gzip(std::string(65536, 'a'));
  for (size_t lost = 1; lost <= 8; ++lost) {
    const auto path = folder.write("cut.gz", good.substr(0, good.size() - lost));
    for (const size_t piece : {1024U, 16384U, 32768U, 65536U}) {
      const std::string error = error_text<DataError>([&] { read_all(path, piece); });
      CHECK(error.find("the gzip data ends too early") != std::string::npos);
    }
  }
}

TEST_CASE("gzip: damaged files are errors that name the file") {
  const TemporaryFolder folder;
  const std::string good = gzip(noise(5000));

  const auto truncated = folder.write("truncated.gz", good.substr(0, good.size() - 3));
  CHECK(read_error(truncated) == truncated.string() + ": the gzip data ends too early (" +
                                     std::to_string(good.size() - 3) +
                                     " bytes in the file); it is truncated, get the file again");
  const auto stub = folder.write("two_bytes.gz", good.substr(0, 2));
  CHECK(read_error(stub) ==
        stub.string() +
            ": the gzip data ends too early (2 bytes in the file); it is truncated, get the "
            "file again");

  std::string wrong = good;
  wrong[wrong.size() - 6] ^= 1;  // in the checksum
  const auto crc = folder.write("crc.gz", wrong);
  CHECK(read_error(crc) ==
        crc.string() + ": the gzip data is corrupt (incorrect data check); get the file again");

  wrong = good;
  wrong[wrong.size() - 2] ^= 1;  // in the length
  const auto length = folder.write("length.gz", wrong);
  CHECK(read_error(length) ==
        length.string() + ": the gzip data is corrupt (incorrect length check); get the file again");
}

TEST_CASE("gzip: what is not a file is an error that names the path") {
  const TemporaryFolder folder;
  const auto missing = folder / "missing.gz";
  CHECK(read_error(missing) == missing.string() + ": no such file; check the path");
  CHECK(read_error(folder.path()) ==
        folder.path().string() + ": not a regular file; give the path of a data file");
}
