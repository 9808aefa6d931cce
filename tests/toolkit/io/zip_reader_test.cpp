// Zip archives: what is read, and that a damaged or hostile one is refused with its exact message.
#include "toolkit/io/zip_reader.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "support/files/zip_bytes.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using test::little_endian;
using test::zip_bytes;
using test::ZipPart;

using Contents = std::map<std::string, std::string>;

using test::write_again;

/// All entries of the archive `bytes`, read as a whole.
Contents contents(const std::string& bytes) {
  test::MemoryFileSystem files;
  files.create("/z")->write(bytes.data(), bytes.size());
  const ZipReader zip(files, "/z");
  Contents all;
  for (const std::string& name : zip.names()) {
    std::string& text = all[name];
    text.resize(zip.find(name)->bytes);
    zip.read_all(name, text.data());
  }
  return all;
}

std::string zip_refusal(const std::string& bytes) {
  return test::error_text<FileError>([&] { contents(bytes); });
}

std::string zip_refusal(const std::vector<ZipPart>& parts, const test::ZipEnd& end = {}) {
  return zip_refusal(zip_bytes(parts, end));
}

const std::vector<ZipPart> two_parts = {{.name = "a/one", .data = "1234567"}, {.name = "a/two", .data = ""}};
const Contents two_contents = {{"a/one", "1234567"}, {"a/two", ""}};
using dtk::test::nothing_thrown;

/// An archive whose sizes and places are all in zip64 records; `entries` as the end record says.
std::string zip64_bytes(uint64_t entries = 1, uint32_t locator_signature = 0x07064b50) {
  const std::string local = "PK\3\4" + little_endian(45, 2) + little_endian(0, 8) +
                            little_endian(test::crc_of("data"), 4) + little_endian(UINT32_MAX, 4) +
                            little_endian(UINT32_MAX, 4) + little_endian(1, 2) + little_endian(20, 2) + "x" +
                            little_endian(1, 2) + little_endian(16, 2) + little_endian(4, 8) +
                            little_endian(4, 8) + "data";
  const std::string directory = "PK\1\2" + little_endian(45, 2) + little_endian(45, 2) + little_endian(0, 8) +
                                little_endian(test::crc_of("data"), 4) + little_endian(UINT32_MAX, 4) +
                                little_endian(UINT32_MAX, 4) + little_endian(1, 2) + little_endian(28, 2) +
                                little_endian(0, 10) + little_endian(UINT32_MAX, 4) + "x" +
                                little_endian(1, 2) + little_endian(24, 2) + little_endian(4, 8) +
                                little_endian(4, 8) + little_endian(0, 8);
  const uint64_t end = local.size() + directory.size();
  return local + directory + little_endian(0x06064b50, 4) + little_endian(44, 8) + little_endian(45, 2) +
         little_endian(45, 2) + little_endian(0, 8) + little_endian(entries, 8) + little_endian(entries, 8) +
         little_endian(directory.size(), 8) + little_endian(local.size(), 8) +
         little_endian(locator_signature, 4) + little_endian(0, 4) + little_endian(end, 8) +
         little_endian(1, 4) + "PK\5\6" + little_endian(0, 4) + little_endian(UINT16_MAX, 2) +
         little_endian(UINT16_MAX, 2) + little_endian(UINT32_MAX, 4) + little_endian(UINT32_MAX, 4) +
         little_endian(0, 2);
}

}  // namespace

TEST_CASE("zip: entries are read, with sizes of 32 and of 64 bits") {
  CHECK(contents(zip_bytes(two_parts)) == two_contents);
  CHECK(contents(zip_bytes({})).empty());
  CHECK(contents(zip64_bytes()) == Contents{{"x", "data"}});
}

TEST_CASE("zip: parts of an entry, and its checksum piece by piece") {
  test::MemoryFileSystem files;
  std::string data(3'000'001, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i >> 7);
  std::string bytes = zip_bytes({{.name = "big", .data = data}});
  files.create("/z")->write(bytes.data(), bytes.size());
  const ZipReader zip(files, "/z");
  CHECK_NOTHROW(zip.verify("big"));
  std::string part(5, '\0');
  zip.read_packed(*zip.find("big"), 2'999'990, part.data(), part.size());
  CHECK(part == data.substr(2'999'990, 5));
  bytes[zip.find("big")->offset + 2'999'999] ^= 1;
  files.create("/z")->write(bytes.data(), bytes.size());
  const std::string changed =
      "/z: zip entry \"big\" has changed since it was written (its CRC-32 differs)" + write_again;
  CHECK(test::error_text<FileError>([&] { zip.verify("big"); }) == changed);
  CHECK(test::error_text<FileError>([&] { zip.read_all("big", data.data()); }) == changed);
  CHECK(zip.find("other") == nullptr);
}

TEST_CASE("zip: a checksum of 0 was never computed") {
  CHECK(contents(zip_bytes({{.name = "a", .data = "x", .crc = 0}})) == Contents{{"a", "x"}});
  CHECK(zip_refusal({{.name = "a", .data = "x", .crc = 1}}) ==
        "/z: zip entry \"a\" has changed since it was written (its CRC-32 differs)" + write_again);
}

TEST_CASE("zip: an archive cut off anywhere is refused") {
  for (const std::string& bytes : {zip_bytes(two_parts), zip64_bytes()}) {
    for (size_t length = 0; length < bytes.size(); ++length) {
      INFO(length);
      CHECK(zip_refusal(bytes.substr(0, length)) ==
            "/z: no zip directory at the end of the file, so it is cut off, or not a file of torch.save" +
                write_again);
    }
  }
}

TEST_CASE("zip: no changed bit changes what is read") {
  for (const std::string& bytes : {zip_bytes(two_parts), zip64_bytes()}) {
    const Contents expected = contents(bytes);
    int refused = 0;
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string changed = bytes;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
      INFO("bit " << bit);
      try {
        const Contents seen = contents(changed);
        CHECK(seen == expected);
      } catch (const FileError&) {
        ++refused;
      }
    }
    CHECK(refused > static_cast<int>(4 * bytes.size()));
  }
}

TEST_CASE("zip: the end of the archive must fit it") {
  const std::string misplaced = "/z: the zip directory does not lie where the end of the file says";
  CHECK(zip_refusal(two_parts, {.offset = 0}) == misplaced + write_again);
  CHECK(zip_refusal(two_parts, {.offset = 0xfffffffe}) == misplaced + write_again);
  CHECK(zip_refusal(two_parts, {.bytes = 0}) == misplaced + write_again);
  CHECK(zip_refusal(two_parts, {.bytes = 0xfffffffe}) == misplaced + write_again);
  CHECK(zip_refusal(two_parts, {.entries = 1}) == "/z: the directory holds 51 bytes too many" + write_again);
  CHECK(zip_refusal(two_parts, {.entries = 3}) ==
        "/z: the zip directory has no room for its 3 entries" + write_again);
  CHECK(zip_refusal(two_parts, {.entries = 0xfffe}) ==
        "/z: the zip directory has no room for its 65534 entries" + write_again);
  const std::string no_zip64 = "/z: the zip64 end of the directory is missing or damaged";
  CHECK(zip_refusal(two_parts, {.entries = 0xffff}) == no_zip64 + write_again);
  CHECK(zip_refusal(two_parts, {.offset = 0xffffffff}) == no_zip64 + write_again);
  CHECK(zip_refusal(zip64_bytes(1, 7)) == no_zip64 + write_again);
  CHECK(zip_refusal(zip64_bytes(uint64_t{1} << 60)) ==
        "/z: the zip directory has no room for its 1152921504606846976 entries" + write_again);
  CHECK(zip_refusal(zip_bytes(two_parts) + "x") ==
        "/z: no zip directory at the end of the file, so it is cut off, or not a file of torch.save" +
            write_again);
}

TEST_CASE("zip: entries that are not stored as they are") {
  CHECK(
      zip_refusal({{.name = "a", .data = "x", .method = 8}}) ==
      "/z: zip entry \"a\" is compressed, and torch.save stores its entries as they are; unpack the archive "
      "and pack it again with zip -0, or save it again with torch.save");
  const ZipPart huge = {.name = "a", .data = "x", .method = 8, .bytes = 0xfffffffe};
  CHECK(zip_refusal({huge}).starts_with("/z: zip entry \"a\" is compressed, and "));
  CHECK(zip_refusal({huge, huge}) == "/z: zip entry \"a\" is there twice" + write_again);
  CHECK(zip_refusal({{.name = "a", .data = "x", .flags = 1}}) ==
        "/z: zip entry \"a\" is encrypted, and torch.save encrypts nothing" + write_again);
  CHECK(zip_refusal({{.name = "a", .data = "x", .packed = 2}}) ==
        "/z: zip entry \"a\" has two sizes" + write_again);
}

TEST_CASE("zip: entries that lie elsewhere, in each other or twice") {
  const std::string misplaced = "/z: zip entry \"a\" does not lie where the zip directory says";
  CHECK(zip_refusal({{.name = "a", .data = "x", .header_at = 1}}) == misplaced + write_again);
  CHECK(zip_refusal({{.name = "a", .data = "x", .header_at = 0xfffffffe}}) == misplaced + write_again);
  CHECK(zip_refusal({{.name = "a", .data = "x", .local_name = "b"}}) == misplaced + write_again);
  CHECK(zip_refusal({{.name = "a", .data = "x", .local_name = "aa"}}) == misplaced + write_again);
  CHECK(zip_refusal({{.name = "a", .data = "x", .packed = 99, .bytes = 99}}) ==
        "/z: zip entry \"a\" reaches beyond the data of the file" + write_again);
  const ZipPart a = {.name = "a", .data = "x"};
  CHECK(zip_refusal({a, {.name = "a", .data = "y"}}) == "/z: zip entry \"a\" is there twice" + write_again);
  // The data of "a" hold a whole entry of their own, to which the directory points.
  const std::string inner = zip_bytes({{.name = "b", .data = "y"}}).substr(0, 32);
  CHECK(zip_refusal({{.name = "a", .data = inner}, {.name = "b", .data = "y", .header_at = 31}}) ==
        "/z: zip entries \"a\" and \"b\" overlap" + write_again);
}

TEST_CASE("zip: extra fields that lie") {
  const std::string wide = little_endian(1, 2) + little_endian(8, 2);
  CHECK(zip_refusal({{.name = "a", .data = "x", .bytes = UINT32_MAX}}) ==
        "/z: zip entry \"a\" lacks its zip64 sizes" + write_again);
  CHECK(zip_refusal({{.name = "a", .data = "x", .extra = wide}}) ==
        "/z: zip entry \"a\" has a damaged extra field" + write_again);
  CHECK(zip_refusal({{.name = "a", .data = "x", .bytes = UINT32_MAX, .extra = wide + little_endian(1, 8)}}) ==
        nothing_thrown);
  CHECK(zip_refusal({{.name = "a", .data = "x", .bytes = UINT32_MAX, .extra = wide + little_endian(2, 8)}}) ==
        "/z: zip entry \"a\" has two sizes" + write_again);
  const std::string two = little_endian(1, 2) + little_endian(16, 2);
  CHECK(zip_refusal({{.name = "a",
                      .data = "x",
                      .packed = UINT32_MAX,
                      .bytes = UINT32_MAX,
                      .extra = two + little_endian(UINT64_MAX, 8) + little_endian(UINT64_MAX, 8)}}) ==
        "/z: zip entry \"a\" reaches beyond the data of the file" + write_again);
}

}  // namespace dtk
