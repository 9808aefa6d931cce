// Damaged and hostile safetensors files: each is refused with its exact message.
#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/safetensors_file.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/safetensors.h"

namespace dtk {
namespace {

const std::string again = "; get the file again, or write it again";

std::string length_prefix(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xff);
  return bytes;
}

std::string file_of(const std::string& header, size_t data_bytes = 0) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\0');
}

std::string refusal(const std::string& bytes) {
  return test::error_text<FileError>([&] { test::read_safetensors_bytes(bytes); });
}

std::string refusal_of(const std::string& header, size_t data_bytes = 0) {
  return refusal(file_of(header, data_bytes));
}

/// Header of one F32 tensor "a".
std::string one_tensor(const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

}  // namespace

TEST_CASE("the file these tests damage is valid", "[safetensors]") {
  CHECK(test::read_safetensors_bytes(file_of(one_tensor("[2]", "[0,8]"), 8)).tensors.size() == 1);
  CHECK(refusal_of(one_tensor("[2]", "[0,8]"), 8) == "(nothing was thrown)");
}

TEST_CASE("hostile header lengths are refused", "[safetensors]") {
  const std::string few =
      " bytes are too few for a safetensors file, which begins with 8 bytes of header length";
  CHECK(refusal("") == "w: 0" + few + again);
  CHECK(refusal("1234567") == "w: 7" + few + again);
  CHECK(refusal(length_prefix(10) + "{}") ==
        "w: the header length is 10 bytes, but only 2 follow: the file is truncated or damaged" + again);
  CHECK(refusal(length_prefix(1) + "") ==
        "w: the header length is 1 bytes, but only 0 follow: the file is truncated or damaged" + again);
  const std::string none = "w: not a safetensors file, or damaged: its header would be ";
  const std::string most = " bytes long; at most 100000000 are allowed";
  CHECK(refusal(length_prefix(100'000'001) + "{}") == none + "100000001" + most + again);
  CHECK(refusal(length_prefix(UINT64_MAX) + "{}") == none + "18446744073709551615" + most + again);
}

TEST_CASE("headers that are not a JSON object are refused", "[safetensors]") {
  CHECK(refusal_of("") == "w: the header is not JSON (at byte 1)" + again);
  CHECK(refusal_of("{\"a\":") == "w: the header is not JSON (at byte 6)" + again);
  CHECK(refusal_of("{} {}") == "w: the header is not JSON (at byte 4)" + again);
  CHECK(refusal_of("{\"\xff\":{}}") == "w: the header is not JSON (at byte 3)" + again);
  CHECK(refusal_of(std::string("{}\0", 3)) == "w: the header is not JSON (at byte 3)" + again);
  CHECK(refusal_of("[]") == "w: the header is not a JSON object" + again);
  CHECK(refusal_of("7") == "w: the header is not a JSON object" + again);
  CHECK(refusal_of("null") == "w: the header is not a JSON object" + again);
  CHECK(refusal_of("{\"a\":1e999}") == "w: the header holds a number that is too large" + again);
}

TEST_CASE("deep nesting is refused", "[safetensors]") {
  const std::string deep = "w: the header nests deeper than 3 levels";
  CHECK(refusal_of(R"({"a":{"shape":[[1]]}})") == deep + again);
  CHECK(refusal_of(R"({"a":{"shape":{"b":{}}}})") == deep + again);
  CHECK(refusal_of(std::string(1'000'000, '[')) == deep + again);
}

TEST_CASE("a key given twice is refused at every level", "[safetensors]") {
  const std::string a = R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]})";
  CHECK(refusal_of("{" + a + "," + a + "}", 4) == "w: the header has the key \"a\" twice" + again);
  CHECK(refusal_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4) ==
        "w: the header has the key \"dtype\" twice" + again);
  CHECK(refusal_of(R"({"__metadata__":{"k":"1","k":"2"}})") ==
        "w: the header has the key \"k\" twice" + again);
  CHECK(refusal_of(R"({"a":1,"\u0061":2})") == "w: the header has the key \"a\" twice" + again);
}

TEST_CASE("entries that are not a tensor are refused", "[safetensors]") {
  CHECK(refusal_of(R"({"a":[]})") ==
        "w: tensor \"a\" is not an object with dtype, shape and data_offsets" + again);
  CHECK(refusal_of(R"({"a":{"shape":[],"data_offsets":[0,4]}})") == "w: tensor \"a\" has no dtype" + again);
  CHECK(refusal_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})") ==
        "w: tensor \"a\" has no shape" + again);
  CHECK(refusal_of(R"({"a":{"dtype":"F32","shape":[]}})") == "w: tensor \"a\" has no data_offsets" + again);
  CHECK(refusal_of(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"x":1}})") ==
        "w: tensor \"a\" has the unknown field \"x\"; known are dtype, shape and data_offsets" + again);
  CHECK(refusal_of(R"({"a\n":[]})") ==
        "w: tensor \"a\\n\" is not an object with dtype, shape and data_offsets" + again);
  CHECK(refusal_of("{\"" + std::string(5000, 'n') + "\":[]}") ==
        "w: tensor \"" + std::string(100, 'n') + "...\" is not an object with dtype, shape and data_offsets" +
            again);
}

TEST_CASE("unknown dtypes are refused", "[safetensors]") {
  CHECK(refusal_of(R"({"a":{"dtype":"F8_E4M3","shape":[],"data_offsets":[0,1]}})", 1) ==
        "w: tensor \"a\" has the unknown dtype \"F8_E4M3\"; known are F64 F32 F16 BF16 I64 I32 I16 I8 U8 "
        "BOOL; convert it to one of these");
  CHECK(refusal_of(R"({"a":{"dtype":7,"shape":[],"data_offsets":[0,1]}})", 1) ==
        "w: tensor \"a\": dtype is not a string" + again);
}

TEST_CASE("shapes that are no shapes are refused", "[safetensors]") {
  const std::string other = " holds something other than a whole number from 0 to 2^63-1";
  CHECK(refusal_of(one_tensor("3", "[0,4]"), 4) == "w: tensor \"a\": shape is not an array" + again);
  CHECK(refusal_of(one_tensor("[-1]", "[0,4]"), 4) == "w: tensor \"a\": shape [-1]" + other + again);
  CHECK(refusal_of(one_tensor("[1.0]", "[0,4]"), 4) == "w: tensor \"a\": shape [1.0]" + other + again);
  CHECK(refusal_of(one_tensor("[\"1\"]", "[0,4]"), 4) == "w: tensor \"a\": shape [\"1\"]" + other + again);
  CHECK(refusal_of(one_tensor("[9223372036854775808]", "[0,4]"), 4) ==
        "w: tensor \"a\": shape [9223372036854775808]" + other + again);
  std::string ones = "1";
  for (int i = 1; i < 65; ++i) ones += ",1";
  CHECK(refusal_of(one_tensor("[" + ones + "]", "[0,4]"), 4) ==
        "w: tensor \"a\" has 65 dimensions; at most 64 are allowed" + again);
}

TEST_CASE("shapes whose product overflows are refused, also beside a zero", "[safetensors]") {
  const std::string overflow = " is too large to address";
  CHECK(refusal_of(one_tensor("[4294967296,4294967296]", "[0,0]")) ==
        "w: tensor \"a\": shape [4294967296,4294967296]" + overflow + again);
  // 2^62 elements of 4 bytes: the count fits, the bytes are 2^64.
  CHECK(refusal_of(one_tensor("[4611686018427387904]", "[0,0]")) ==
        "w: tensor \"a\": shape [4611686018427387904]" + overflow + again);
  CHECK(refusal_of(one_tensor("[0,4294967296,4294967296]", "[0,0]")) ==
        "w: tensor \"a\": shape [0,4294967296,4294967296]" + overflow + again);
}

TEST_CASE("data_offsets that are no range of the data are refused", "[safetensors]") {
  const std::string pair = "w: tensor \"a\": data_offsets is not a pair of whole numbers from 0";
  CHECK(refusal_of(one_tensor("[1]", "7"), 4) == pair + again);
  CHECK(refusal_of(one_tensor("[1]", "[0]"), 4) == pair + again);
  CHECK(refusal_of(one_tensor("[1]", "[0,4,4]"), 4) == pair + again);
  CHECK(refusal_of(one_tensor("[1]", "[-4,0]"), 4) == pair + again);
  CHECK(refusal_of(one_tensor("[1]", "[0,4.0]"), 4) == pair + again);
  CHECK(refusal_of(one_tensor("[1]", "[0,18446744073709551616]"), 4) == pair + again);
  CHECK(refusal_of(one_tensor("[1]", "[4,0]"), 4) ==
        "w: tensor \"a\": data_offsets [4,0] end before they begin" + again);
  CHECK(refusal_of(one_tensor("[1]", "[18446744073709551612,18446744073709551615]"), 4) ==
        "w: tensor \"a\": data_offsets [18446744073709551612,18446744073709551615] reach beyond the 4 bytes "
        "of data in the file, which is truncated or damaged" +
            again);
  CHECK(refusal_of(one_tensor("[2]", "[0,4]"), 4) ==
        "w: tensor \"a\": data_offsets [0,4] hold 4 bytes, but shape [2] of F32 takes 8" + again);
  CHECK(refusal_of(one_tensor("[0]", "[0,4]"), 4) ==
        "w: tensor \"a\": data_offsets [0,4] hold 4 bytes, but shape [0] of F32 takes 0" + again);
}

TEST_CASE("truncated data are refused", "[safetensors]") {
  CHECK(refusal_of(one_tensor("[2]", "[0,8]"), 7) ==
        "w: tensor \"a\": data_offsets [0,8] reach beyond the 7 bytes of data in the file, which is "
        "truncated or damaged" +
            again);
}

TEST_CASE("overlaps and gaps are refused", "[safetensors]") {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  CHECK(refusal_of(two("[0,4]", "[4,8]"), 8) == "(nothing was thrown)");
  CHECK(refusal_of(two("[0,4]", "[2,6]"), 6) ==
        "w: tensors \"a\" and \"b\" overlap: data_offsets [0,4] and [2,6]" + again);
  CHECK(refusal_of(two("[0,4]", "[0,4]"), 4) ==
        "w: tensors \"a\" and \"b\" overlap: data_offsets [0,4] and [0,4]" + again);
  CHECK(refusal_of(two("[0,4]", "[6,10]"), 10) ==
        "w: the data bytes [4,6] before tensor \"b\" belong to no tensor" + again);
  CHECK(refusal_of(two("[5,9]", "[1,5]"), 9) ==
        "w: the data bytes [0,1] before tensor \"b\" belong to no tensor" + again);
  CHECK(refusal_of(two("[0,4]", "[4,8]"), 11) == "w: the last data bytes [8,11] belong to no tensor" + again);
  CHECK(refusal_of("{}", 1) == "w: the last data bytes [0,1] belong to no tensor" + again);
}

TEST_CASE("metadata that are not strings are refused", "[safetensors]") {
  CHECK(refusal_of(R"({"__metadata__":[]})") == "w: __metadata__ is not an object" + again);
  CHECK(refusal_of(R"({"__metadata__":{"k":1}})") ==
        "w: __metadata__: the value of \"k\" is not a string" + again);
  CHECK(refusal_of(R"({"__metadata__":{"k":{}}})") ==
        "w: __metadata__: the value of \"k\" is not a string" + again);
}

TEST_CASE("booleans other than 0 and 1 are refused", "[safetensors]") {
  const std::string header = R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  CHECK(refusal(length_prefix(header.size()) + header + "\1\2\1") ==
        "w: tensor \"a\" of BOOL holds a byte other than 0 and 1" + again);
}

TEST_CASE("no prefix and no single changed header byte makes the reader misbehave", "[safetensors]") {
  const std::string good = file_of(one_tensor("[2]", "[0,8]"), 8);
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    CHECK(refusal(good.substr(0, bytes)) != "(nothing was thrown)");
  }
  // Some changes are harmless (a name's letter); the others must end in a FileError, which refusal() catches.
  for (size_t at = 0; at < good.size() - 8; ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(value);
      CHECK_NOTHROW(refusal(damaged));
    }
  }
}

}  // namespace dtk
