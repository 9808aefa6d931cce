#include "toolkit/io/npy.h"

#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "support/fixture.h"
#include "toolkit/core/errors.h"

using dtk::DataError;
using dtk::parse_npy;
using dtk::test::error_text;

namespace {

const std::string again = "; save it again with numpy.save";

const dtk::test::Fixture& numpy_files() {
  static const dtk::test::Fixture files = dtk::test::read_fixture("numpy_files");
  return files;
}

/// A file as NumPy wrote it.
std::string numpy_file(const std::string& name) {
  const at::Tensor bytes = numpy_files().at(name + ".npy");
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

std::string written(const at::Tensor& tensor) {
  dtk::test::MemoryFileSystem files;
  const auto file = files.create("a.npy");
  dtk::write_npy(*file, tensor);
  return files.read("a.npy");
}

std::string refusal(const std::string& bytes) {
  return error_text<DataError>([&] { parse_npy(bytes, "a.npy"); });
}

/// Version 1.0 with `header` as it is, and `values` bytes of values.
std::string file_of(const std::string& header, size_t values) {
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size() & 0xff) +
         static_cast<char>(header.size() >> 8) + header + std::string(values, 'v');
}

std::string with_shape(const std::string& shape, size_t values) {
  return file_of("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n", values);
}

const std::vector<std::string> arrays = {"f4_2d", "f4_4d", "f2", "f8",     "i8",    "i4",  "i2",
                                         "i1",    "u1",    "b1", "scalar", "empty", "wide"};

}  // namespace

TEST_CASE("npy: what NumPy saves is read with its type, shape and values") {
  for (const std::string& name : arrays) {
    INFO(name);
    const std::string bytes = numpy_file(name);
    const at::Tensor expected = numpy_files().at(name + ".values");
    const dtk::NpyArray array = parse_npy(bytes, name);
    CHECK(array.type == expected.scalar_type());
    CHECK(array.shape == expected.sizes().vec());
    const auto* first = static_cast<const char*>(expected.const_data_ptr());
    CHECK(array.values == std::string_view(first, expected.nbytes()));
  }
  for (const std::string name : {"version_2", "version_3"}) {
    const std::string bytes = numpy_file(name);
    CHECK(parse_npy(bytes, name).shape == std::vector<int64_t>{2, 3});
    CHECK(parse_npy(bytes, name).values == bytes.substr(bytes.size() - 24));
  }
}

TEST_CASE("npy: what is written is what NumPy writes, byte for byte") {
  for (const std::string& name : arrays) {
    INFO(name);
    CHECK(written(numpy_files().at(name + ".values")) == numpy_file(name));
  }
  const at::Tensor values = numpy_files().at("f4_2d.values");
  CHECK(written(values.t().contiguous().t()) == numpy_file("f4_2d"));  // of another layout
  CHECK(error_text<std::invalid_argument>([&] { written(values.to(at::kBFloat16)); }) ==
        "write_npy: no .npy dtype for BFloat16; known are <f8 <f4 <f2 <i8 <i4 <i2 |i1 <u4 |u1 |b1");
}

TEST_CASE("npy: a header in another order and spacing says the same") {
  const std::string bytes = file_of("{ \"shape\" : ( 2 ,1) ,\"fortran_order\":False,'descr' : \"<f4\"}", 8);
  CHECK(parse_npy(bytes, "a").shape == std::vector<int64_t>{2, 1});
}

TEST_CASE("npy: arrays of other kinds are refused") {
  CHECK(refusal(numpy_file("fortran")) ==
        "a.npy: is in Fortran order; save it in C order, with numpy.ascontiguousarray()");
  CHECK(
      refusal(numpy_file("object")) ==
      "a.npy: has the dtype \"|O\": Python objects, which are not read, as reading them could run code; save "
      "plain numbers");
  CHECK(refusal(numpy_file("records")) == "a.npy: holds records with fields; save one plain array");
  CHECK(refusal(numpy_file("big_endian")) ==
        "a.npy: has the dtype \">f4\", which is big-endian; save the array with its little-endian dtype");
  const std::string known = "; known are <f8 <f4 <f2 <i8 <i4 <i2 |i1 <u4 |u1 |b1; save it as one of these";
  CHECK(refusal(numpy_file("complex")) == "a.npy: has the dtype \"<c8\"" + known);
  CHECK(refusal(numpy_file("void2")) ==
        "a.npy: has the dtype \"|V2\"" + known + ". If these are bfloat16, save them as .safetensors");
}

TEST_CASE("npy: what is no .npy file is refused") {
  CHECK(refusal("") ==
        "a.npy: is not a .npy file, which begins with \\x93NUMPY; save the array with numpy.save");
  CHECK(refusal("PK\3\4 an archive of them") ==
        "a.npy: is not a .npy file, which begins with \\x93NUMPY; save the array with numpy.save");
  CHECK(refusal(std::string("\x93NUMPY\4\0", 8) + "xx") ==
        "a.npy: is a .npy file of version 4.0; known are 1.0, 2.0 and 3.0" + again);
  const std::string whole = numpy_file("f4_2d");
  CHECK(refusal(whole.substr(0, 9)) ==
        "a.npy: ends after 9 bytes, inside the .npy header; get the file again");
  CHECK(refusal(whole.substr(0, 60)) ==
        "a.npy: ends after 60 bytes, inside the .npy header; get the file again");
  const std::string long_header = std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12) + "{";
  CHECK(refusal(long_header) ==
        "a.npy: the .npy header has 4294967295 bytes; at most 10000 are allowed" + again);
}

TEST_CASE("npy: values that are fewer or more than the shape says are refused") {
  const std::string whole = numpy_file("f4_2d");
  CHECK(refusal(whole.substr(0, whole.size() - 1)) ==
        "a.npy: holds 23 bytes of values, but shape (2, 3) of <f4 takes 24; it is truncated, get the file "
        "again");
  CHECK(refusal(whole + "xy") == "a.npy: holds 26 bytes of values, but shape (2, 3) of <f4 takes 24" + again);
  CHECK(
      refusal(with_shape("(5,)", 4)) ==
      "a.npy: holds 4 bytes of values, but shape (5,) of <f4 takes 20; it is truncated, get the file again");
}

TEST_CASE("npy: absurd shapes are refused") {
  CHECK(refusal(with_shape("(4611686018427387904,)", 0)) ==
        "a.npy: the shape (4611686018427387904,) is too large to address" + again);
  CHECK(refusal(with_shape("(4294967296, 4294967296)", 0)) ==
        "a.npy: the shape (4294967296, 4294967296) is too large to address" + again);
  CHECK(refusal(with_shape("(0, 4294967296, 4294967296)", 0)) ==
        "a.npy: the shape (0, 4294967296, 4294967296) is too large to address" + again);
  const std::string no_description = "a.npy: the .npy header is no description of an array: ";
  CHECK(refusal(with_shape("(9223372036854775808,)", 0)) ==
        no_description + "'shape' holds a number beyond 2^63-1" + again);
  CHECK(refusal(with_shape("(-1,)", 0)) ==
        no_description + "'shape' holds something other than whole numbers from 0: \"-1,), }\\n\"" + again);
  CHECK(refusal(with_shape("(2.5,)", 0)) == no_description + "')' is missing before \".5,), }\\n\"" + again);
  CHECK(refusal(with_shape("(3)", 12)) ==
        no_description + "'shape' is a number in brackets, not a tuple" + again);
  std::string ones;
  for (int i = 0; i < 65; ++i) ones += "1, ";
  CHECK(refusal(with_shape("(" + ones + ")", 4)) ==
        no_description + "'shape' has more than 64 dimensions" + again);
}

TEST_CASE("npy: headers that are no such dictionary are refused") {
  const std::string no_description = "a.npy: the .npy header is no description of an array: ";
  const auto refused = [&](const std::string& header) {
    const std::string text = refusal(file_of(header, 4));
    REQUIRE(text.starts_with(no_description));
    return text.substr(no_description.size());
  };
  const std::string good = "'descr': '<f4', 'fortran_order': False, 'shape': (1,)";
  CHECK(refusal(file_of("{" + good + "}", 4)) == "(nothing was thrown)");
  CHECK(refused("") == "'{' is missing before \"\"" + again);
  CHECK(refused("{}") == "it has not all of 'descr', 'fortran_order' and 'shape'" + again);
  CHECK(refused("{'descr': '<f4', 'shape': (1,)}") ==
        "it has not all of 'descr', 'fortran_order' and 'shape'" + again);
  CHECK(refused("{" + good) == "'}' is missing before \"\"" + again);
  CHECK(refused("{" + good + "} + f()") == "something follows the dictionary" + again);
  CHECK(refused("{" + good + ", 'descr': '|O'}") == "\"descr\" is there twice" + again);
  CHECK(refused("{" + good + ", 'more': 1}") == "the key \"more\" is not known" + again);
  CHECK(refused("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}") ==
        "'fortran_order' is neither True nor False" + again);
  CHECK(refused("{'descr': f4, 'fortran_order': False, 'shape': (1,)}") ==
        "a text in quotes is missing before \"f4, 'fortran_order': False, 'shape': (1,)}\"" + again);
  CHECK(refused("{'descr: ") == "a text has no end: \"'descr: \"" + again);
}

TEST_CASE("npy: no prefix and no single changed byte of a header makes the reader misbehave") {
  const std::string good = numpy_file("f4_2d");
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    CHECK(refusal(good.substr(0, bytes)) != "(nothing was thrown)");
  }
  // Some changes are harmless; the others must end in a DataError, which refusal() catches.
  for (size_t at = 0; at < 128; ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(value);
      CHECK_NOTHROW(refusal(damaged));
    }
  }
}
