// .npz files: what is read and written, and that a damaged or hostile one is refused with its exact message.
#include "toolkit/io/npz.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/npz_bytes.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using test::deflated;
using test::deflated_array;
using test::npy_bytes;
using test::stored_array;
using test::zip_bytes;
using test::ZipPart;

const std::string again = "; get the file again, or save it again with numpy.savez_compressed";
using dtk::test::nothing_thrown;

/// A file system that says how many bytes were read.
class CountingFiles : public test::MemoryFileSystem {
 public:
  void read_into(const Path& path, uint64_t offset, void* data, size_t bytes) override {
    bytes_read += bytes;
    test::MemoryFileSystem::read_into(path, offset, data, bytes);
  }
  uint64_t bytes_read = 0;
};

at::Tensor numbers() {
  return at::arange(6, at::kFloat).view({2, 3});
}

const NpzArray wanted = {.key = "a", .shape = {2, 3}};

at::Tensor read(const std::string& bytes, const NpzArray& expected = wanted) {
  test::MemoryFileSystem files;
  files.create("/f.npz")->write(bytes.data(), bytes.size());
  const NpzReader npz(read_by_name(files, "/f.npz"), "/f.npz");
  at::Tensor values = at::full(expected.shape, 77, at::TensorOptions(expected.type));
  npz.read(expected, values.mutable_data_ptr());
  return values;
}

std::string refusal(const std::string& bytes, const NpzArray& expected = wanted) {
  return test::error_text<DataError>([&] { read(bytes, expected); });
}

std::string refusal(const std::vector<ZipPart>& parts, const NpzArray& expected = wanted) {
  return refusal(zip_bytes(parts), expected);
}

/// A .npy file of version 1.0 with these values behind a header that says something else.
std::string npy_with(const std::string& header, const std::string& values) {
  return std::string("\x93NUMPY\1\0", 8) + test::little_endian(header.size(), 2) + header + values;
}

std::string npy_of_shape(const std::string& shape, const std::string& values) {
  return npy_with("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n", values);
}

/// Both ways to store an array.
std::vector<ZipPart> both(const std::string& npy) {
  return {stored_array("a", npy), deflated_array("a", npy)};
}

}  // namespace

TEST_CASE("npz: stored and deflated arrays are read, of several the one asked for") {
  for (const ZipPart& part : both(npy_bytes(numbers()))) {
    const std::string bytes = zip_bytes({stored_array("before", "x"), part, stored_array("text", "y")});
    CHECK(at::equal(read(bytes), numbers()));
    test::MemoryFileSystem files;
    files.create("/f.npz")->write(bytes.data(), bytes.size());
    const NpzReader npz(read_by_name(files, "/f.npz"), "/f.npz");
    CHECK(npz.keys() == std::vector<std::string>{"a", "before", "text"});
    CHECK(npz.has("a"));
    CHECK_FALSE(npz.has("a.npy"));
  }
}

TEST_CASE("npz: an array's shape is told by its header alone") {
  const auto shape = [](const std::string& bytes) {
    test::MemoryFileSystem files;
    files.create("/f.npz")->write(bytes.data(), bytes.size());
    return NpzReader(read_by_name(files, "/f.npz"), "/f.npz").shape("a");
  };
  for (const ZipPart& part : both(npy_bytes(numbers()))) {
    CHECK(shape(zip_bytes({part})) == std::vector<int64_t>{2, 3});
  }
  CHECK(shape(zip_bytes({stored_array("a", npy_of_shape("()", "1234"))})).empty());
  CHECK(shape(zip_bytes({stored_array("a", npy_of_shape("(1000000, 7)", "no such values"))})) ==
        std::vector<int64_t>{1000000, 7});
  CHECK(test::error_text<DataError>([&] { shape(zip_bytes({stored_array("b", "x")})); }) ==
        "/f.npz: has no array \"a\"; it holds b; store the array under that name");
}

TEST_CASE("npz: values arrive where they were asked for, and not a byte beside it") {
  const at::Tensor values = at::randn({300, 40});
  for (const ZipPart& part : both(npy_bytes(values))) {
    test::MemoryFileSystem files;
    const std::string bytes = zip_bytes({part});
    files.create("/f.npz")->write(bytes.data(), bytes.size());
    at::Tensor room = at::full({3, 300, 40}, 77.0F);
    NpzReader(read_by_name(files, "/f.npz"), "/f.npz")
        .read({.key = "a", .shape = {300, 40}}, room[1].mutable_data_ptr());
    CHECK(at::equal(room[1], values));
    CHECK(room[0].eq(77).all().item<bool>());
    CHECK(room[2].eq(77).all().item<bool>());
  }
}

TEST_CASE("npz: of arrays that may have more rows the first ones are read, and all are checked") {
  const at::Tensor values = at::randn({5000, 3});
  NpzArray expected = {.key = "a", .shape = {2, 3}, .max_rows = 5000};
  for (ZipPart part : both(npy_bytes(values))) {
    CHECK(at::equal(read(zip_bytes({part}), expected), values.narrow(0, 0, 2)));
    part.crc = 7;
    CHECK(refusal({part}, expected) ==
          "/f.npz: array \"a\" has changed since it was written (its CRC-32 differs)" + again);
  }
  expected.max_rows = 4999;
  CHECK(refusal({stored_array("a", npy_bytes(values))}, expected) ==
        "/f.npz: array \"a\" has the shape (5000, 3); allowed: (2, 3) with up to 4999 rows; save it in that "
        "shape");
  CHECK(refusal({stored_array("a", npy_bytes(values.narrow(0, 0, 1)))}, expected) ==
        "/f.npz: array \"a\" has the shape (1, 3); allowed: (2, 3) with up to 4999 rows; save it in that "
        "shape");
}

TEST_CASE("npz: float64 is rounded where it is allowed") {
  const at::Tensor values = at::randn({100, 200}, at::kDouble);
  const NpzArray expected = {.key = "a", .shape = {90, 200}, .max_rows = 100, .or_double = true};
  for (const ZipPart& part : both(npy_bytes(values)))
    CHECK(at::equal(read(zip_bytes({part}), expected), values.narrow(0, 0, 90).to(at::kFloat)));
  CHECK(refusal({stored_array("a", npy_bytes(numbers().to(at::kDouble)))}) ==
        "/f.npz: array \"a\" is float64; allowed: float32; save it as float32");
  CHECK(refusal({stored_array("a", npy_bytes(at::zeros({90, 200}, at::kInt)))}, expected) ==
        "/f.npz: array \"a\" is int32; allowed: float32 or float64; save it as float32");
}

TEST_CASE("npz: an array that is missing or of another kind is named, with what was expected") {
  const std::string npy = npy_bytes(numbers());
  CHECK(refusal({stored_array("b", npy), stored_array("c", npy)}) ==
        "/f.npz: has no array \"a\"; it holds b, c; store the array under that name");
  CHECK(refusal({{.name = "a", .data = npy}}) ==
        "/f.npz: has no array \"a\"; it holds none; store the array under that name");
  std::vector<ZipPart> many;
  for (int i = 10; i < 40; ++i) many.push_back(stored_array(std::to_string(i), npy));
  CHECK(refusal(many) ==
        "/f.npz: has no array \"a\"; it holds 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, "
        "25, 26, "
        "27, 28, 29, ...; store the array under that name");
  NpzArray other = wanted;
  other.shape = {3, 2};
  other.other_shape_advice = "make it again";
  CHECK(refusal({stored_array("a", npy)}, other) ==
        "/f.npz: array \"a\" has the shape (2, 3); allowed: (3, 2); make it again");
  other.shape = {6};
  CHECK(refusal({stored_array("a", npy)}, other) ==
        "/f.npz: array \"a\" has the shape (2, 3); allowed: (6,); make it again");
  CHECK(refusal({stored_array("a", npy_bytes(at::scalar_tensor(1.0F)))},
                {.key = "a", .shape = {1}, .max_rows = 9}) ==
        "/f.npz: array \"a\" has the shape (); allowed: (1,) with up to 9 rows; save it in that shape");
  other.type = c10::ScalarType::UInt32;
  CHECK(refusal({stored_array("a", npy)}, other) ==
        "/f.npz: array \"a\" is float32; allowed: uint32; save it as uint32");
}

TEST_CASE("npz: arrays that are not plain numbers in C order are refused") {
  const std::string values(24, '\0');
  const auto refused = [&](const std::string& header) {
    return refusal({deflated_array("a", npy_with(header, values))});
  };
  CHECK(refused("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }") ==
        "/f.npz: array \"a\": has the dtype \"|O\": Python objects, which are not read, as reading them "
        "could run "
        "code; save plain numbers");
  CHECK(refused("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }") ==
        "/f.npz: array \"a\": is in Fortran order; save it in C order, with numpy.ascontiguousarray()");
  CHECK(refused("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }") ==
        "/f.npz: array \"a\": has the dtype \">f4\", which is big-endian; save the array with its "
        "little-endian dtype");
  CHECK(refused("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2, 3), }") ==
        "/f.npz: array \"a\": holds records with fields; save one plain array");
  CHECK(refusal({deflated_array("a", "a text")}) ==
        "/f.npz: array \"a\": is not a .npy file, which begins with \\x93NUMPY; save the array with "
        "numpy.save");
  CHECK(refusal({deflated_array("a", npy_bytes(numbers()).substr(0, 60))}) ==
        "/f.npz: array \"a\": ends after 60 bytes, inside the .npy header; get the file again");
  CHECK(refusal({deflated_array("a", "")}) ==
        "/f.npz: array \"a\": is not a .npy file, which begins with \\x93NUMPY; save the array with "
        "numpy.save");
}

TEST_CASE("npz: sizes that contradict each other are refused") {
  const std::string npy = npy_bytes(numbers());
  for (const ZipPart& part : both(npy.substr(0, npy.size() - 1))) {
    CHECK(refusal({part}) ==
          "/f.npz: array \"a\": holds 23 bytes of values, but shape (2, 3) of <f4 takes 24; it is truncated, "
          "get the "
          "file again");
  }
  for (const ZipPart& part : both(npy + "x")) {
    CHECK(
        refusal({part}) ==
        "/f.npz: array \"a\": holds 25 bytes of values, but shape (2, 3) of <f4 takes 24; save it again with "
        "numpy.save");
  }
  ZipPart part = deflated_array("a", npy.substr(0, npy.size() - 1));
  part.bytes = npy.size();
  CHECK(refusal({part}) ==
        "/f.npz: array \"a\" unpacks to 151 bytes, and the zip directory says 152" + again);
  part = deflated_array("a", npy + "x");
  part.bytes = npy.size();
  CHECK(refusal({part}) ==
        "/f.npz: array \"a\" unpacks to more than the 152 bytes that the zip directory says" + again);
  part = deflated_array("a", npy);
  part.data += "xyz";
  CHECK(refusal({part}) == "/f.npz: array \"a\" has 3 bytes behind the end of its compressed data" + again);
}

TEST_CASE("npz: compressed data that are damaged or of another method are refused") {
  const std::string npy = npy_bytes(at::randn({2, 3}));
  ZipPart part = deflated_array("a", npy);
  const size_t whole = part.data.size();
  part.data.resize(whole - 5);
  CHECK(refusal({part}) == "/f.npz: array \"a\" has compressed data that end too early, after " +
                               std::to_string(whole - 5) + " bytes" + again);
  part.data.clear();
  CHECK(refusal({part}) ==
        "/f.npz: array \"a\" has compressed data that end too early, after 0 bytes" + again);
  part.data = "\xff\xff\xff";
  CHECK(refusal({part}) == "/f.npz: array \"a\" has corrupt compressed data (invalid block type)" + again);
  part.method = 12;
  CHECK(refusal({part}) ==
        "/f.npz: array \"a\" is compressed by method 12; read are 0 (stored) and 8 (deflate)" + again);
}

TEST_CASE("npz: what zlib still holds when its input has ended is read") {
  // Of some sizes the last bytes of output come after the last byte of input: of 8,221 zeros, for example.
  for (int64_t size = 8192; size < 8448; ++size) {
    INFO(size << " values");
    const NpzArray zeros = {.key = "a", .type = at::kDouble, .shape = {size}};
    const std::string file = zip_bytes({deflated_array("a", npy_bytes(at::zeros({size}, at::kDouble)))});
    CHECK(read(file, zeros).count_nonzero().item<int64_t>() == 0);
  }
}

TEST_CASE("npz: a size bomb is refused before it is unpacked") {
  // 64 MiB in 64 KiB, of the shape that it claims.
  const std::string zeros(size_t{64} << 20, '\0');
  const std::string header = npy_of_shape("(16777216,)", "");
  const std::string plain = header + zeros;
  const auto refused = [](const ZipPart& part) {
    CountingFiles files;
    const std::string bytes = zip_bytes({part});
    files.create("/f.npz")->write(bytes.data(), bytes.size());
    at::Tensor values = at::zeros({2, 3});
    const std::string text = test::error_text<DataError>(
        [&] { NpzReader(read_by_name(files, "/f.npz"), "/f.npz").read(wanted, values.mutable_data_ptr()); });
    CHECK(files.bytes_read < 70'000);  // the directory, and one piece of the packed data
    return text;
  };
  const std::string other_shape =
      "/f.npz: array \"a\" has the shape (16777216,); allowed: (2, 3); save it in that shape";
  const ZipPart bomb = deflated_array("a", plain);
  REQUIRE(bomb.data.size() < 70'000);
  CHECK(refused(bomb) == other_shape);
  // The shape is the one expected, and the values go on.
  const ZipPart disguised = deflated_array("a", npy_of_shape("(2, 3)", zeros));
  CHECK(refused(disguised) ==
        "/f.npz: array \"a\": holds 67108864 bytes of values, but shape (2, 3) of <f4 takes 24; save it "
        "again with "
        "numpy.save");
  ZipPart small = disguised;
  small.bytes = npy_of_shape("(2, 3)", "").size() + 24;
  CHECK(refused(small) == "/f.npz: array \"a\" unpacks to more than the " + std::to_string(*small.bytes) +
                              " bytes that the zip directory says" + again);
  // Nothing but claims.
  ZipPart claim = deflated_array("a", npy_of_shape("(2, 3)", std::string(24, '\0')));
  claim.bytes = 0xfffffffe;
  CHECK(refused(claim).starts_with("/f.npz: array \"a\": holds 4294967"));
  CHECK(refused(deflated_array("a", npy_of_shape("(4611686018427387904, 4)", ""))) ==
        "/f.npz: array \"a\": the shape (4611686018427387904, 4) is too large to address; save it again with "
        "numpy.save");
  const std::string long_header =
      std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12) + std::string(100'000, ' ');
  CHECK(refused(deflated_array("a", long_header)) ==
        "/f.npz: array \"a\": the .npy header has 4294967295 bytes; at most 10000 are allowed; save it again "
        "with "
        "numpy.save");
}

TEST_CASE("npz: a zip directory that is larger than arrays need is not read") {
  std::vector<ZipPart> parts;
  for (int i = 0; i < 20'000; ++i) parts.push_back({.name = std::to_string(100'000 + i)});
  CountingFiles files;
  const std::string bytes = zip_bytes(parts);
  files.create("/f.npz")->write(bytes.data(), bytes.size());
  CHECK(test::error_text<DataError>([&] { NpzReader(read_by_name(files, "/f.npz"), "/f.npz"); }) ==
        "/f.npz: the zip directory takes 1040000 bytes; at most 524288 are read" + again);
  CHECK(files.bytes_read < 100);
}

TEST_CASE("npz: a wrong CRC-32 is refused, also one of 0, which torch.save's files may have") {
  for (ZipPart part : both(npy_bytes(numbers()))) {
    for (const uint64_t wrong : {uint64_t{0}, *deflated_array("a", npy_bytes(numbers())).crc ^ 1}) {
      part.crc = wrong;
      CHECK(refusal({part}) ==
            "/f.npz: array \"a\" has changed since it was written (its CRC-32 differs)" + again);
    }
  }
}

TEST_CASE("npz: names that lead out of a folder are refused") {
  const ZipPart good = stored_array("a", npy_bytes(numbers()));
  for (const std::string name : {"../a.npy", "/etc/a.npy", "x/../../a.npy", "..", "x/..", "C:a.npy"}) {
    CHECK(refusal({good, {.name = name, .data = "x"}}) ==
          "/f.npz: zip entry \"" + name + "\" has a name that leads out of a folder" + again);
  }
  CHECK(refusal({good, {.name = "..\\a.npy", .data = "x"}}) ==
        "/f.npz: zip entry \"..\\\\a.npy\" has a name that leads out of a folder" + again);
  CHECK(refusal({good, {.name = std::string("a\0.npy", 6), .data = "x"}}) ==
        "/f.npz: zip entry \"a\\u0000.npy\" has a name that leads out of a folder" + again);
  CHECK(refusal({good, {.name = "x/a..npy", .data = "x"}}) == nothing_thrown);
}

TEST_CASE("npz: what is no such archive is refused") {
  CHECK(refusal(std::string("a text")) ==
        "/f.npz: no zip directory at the end of the file, so it is cut off, or not a .npz file" + again);
  ZipPart part = stored_array("a", npy_bytes(numbers()));
  CHECK(refusal({part, part}) == "/f.npz: zip entry \"a.npy\" is there twice" + again);
  part.flags = 1;
  CHECK(refusal({part}) == "/f.npz: zip entry \"a.npy\" is encrypted, and NumPy encrypts nothing" + again);
  CHECK(test::error_text<DataError>([] { NpzReader("/nowhere/gone.npz"); }) ==
        "cannot read /nowhere/gone.npz: No such file or directory; check the path");
}

TEST_CASE("npz: a file cut off anywhere is refused, and no changed bit changes what is read") {
  for (const ZipPart& part : both(npy_bytes(numbers()))) {
    const std::string whole = zip_bytes({part});
    for (size_t length = 0; length < whole.size(); ++length) {
      INFO(length);
      CHECK(refusal(whole.substr(0, length)) ==
            "/f.npz: no zip directory at the end of the file, so it is cut off, or not a .npz file" + again);
    }
    int refused = 0;
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string changed = whole;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
      INFO("bit " << bit);
      try {
        const at::Tensor seen = read(changed);
        CHECK(at::equal(seen, numbers()));
      } catch (const DataError&) {
        ++refused;
      }
    }
    CHECK(refused > static_cast<int>(4 * whole.size()));
  }
}

TEST_CASE("npz: what is written is read again, and depends on the arrays alone") {
  const at::Tensor version = at::full({1}, 2, at::kLong).to(at::kUInt32);
  for (const auto packing : {NpzWriter::Packing::deflated, NpzWriter::Packing::stored}) {
    const auto written = [&] {
      test::MemoryFileSystem files;
      const auto file = files.create("/f.npz");
      NpzWriter npz(*file, packing);
      npz.add("version", version);
      npz.add("zeros", at::zeros({100, 1000}));
      npz.add("strided", at::arange(12, at::kInt).view({3, 4}).t());
      npz.add("none", at::zeros({0, 3}));
      npz.finish();
      return files.read("/f.npz");
    };
    const std::string bytes = written();
    CHECK(bytes == written());
    CHECK((bytes.size() < 3000) == (packing == NpzWriter::Packing::deflated));
    CHECK(read(bytes, {.key = "version", .type = c10::ScalarType::UInt32, .shape = {1}})
              .to(at::kLong)
              .item<int64_t>() == 2);
    CHECK(read(bytes, {.key = "zeros", .shape = {100, 1000}}).eq(0).all().item<bool>());
    CHECK(at::equal(read(bytes, {.key = "strided", .type = c10::ScalarType::Int, .shape = {4, 3}}),
                    at::arange(12, at::kInt).view({3, 4}).t()));
    CHECK(read(bytes, {.key = "none", .shape = {0, 3}}).numel() == 0);
  }
}

}  // namespace dtk
