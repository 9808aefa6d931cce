#include "toolkit/io/safetensors.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>

#include "support/catch.h"
#include "support/files/memory_file_system.h"
#include "support/files/safetensors_file.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using Tensors = std::vector<NamedTensor>;
using Metadata = std::map<std::string, std::string>;

std::string bytes_of(const Tensors& tensors, const Metadata& metadata = {}) {
  test::MemoryFileSystem files;
  write_safetensors(*files.create("/a"), tensors, metadata);
  return files.read("/a");
}

const at::Tensor& find(const test::SafetensorsFile& file, const std::string& name) {
  for (const NamedTensor& entry : file.tensors) {
    if (entry.name == name) return entry.tensor;
  }
  throw std::out_of_range("no tensor " + name);
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::equal(a, b);
}

/// One tensor of every dtype, from the largest magnitude down where that matters.
Tensors every_dtype() {
  const at::Tensor numbers = at::arange(-6, 6, at::kDouble).reshape({3, 4}) * 0.5;
  return {{"f64", numbers.clone()},
          {"f32", numbers.to(at::kFloat)},
          {"f16", numbers.to(at::kHalf)},
          {"bf16", numbers.to(at::kBFloat16)},
          {"i64", at::full({2}, std::numeric_limits<int64_t>::min(), at::kLong)},
          {"i32", at::full({2}, std::numeric_limits<int32_t>::max(), at::kInt)},
          {"i16", at::full({3}, -32768, at::kShort)},
          {"i8", at::full({3}, -128, at::kChar)},
          {"u8", at::full({3}, 255, at::kByte)},
          {"bool", numbers > 0}};
}

}  // namespace

TEST_CASE("every dtype, empty and scalar tensors come back as they were", "[safetensors]") {
  Tensors tensors = every_dtype();
  tensors.push_back({"scalar", at::scalar_tensor(2.5)});
  tensors.push_back({"empty", at::empty({0})});
  tensors.push_back({"empty_matrix", at::empty({3, 0, 2}, at::kLong)});
  const test::SafetensorsFile file = test::read_safetensors_bytes(bytes_of(tensors));
  CHECK(file.tensors.size() == tensors.size());
  CHECK(file.metadata.empty());
  for (const NamedTensor& entry : tensors) {
    INFO(entry.name);
    CHECK(same(find(file, entry.name), entry.tensor));
  }
}

TEST_CASE("NaN, infinities and signed zeros keep their bits", "[safetensors]") {
  const at::Tensor values = at::tensor({std::nan("7"), -INFINITY, INFINITY, -0.0}, at::kDouble);
  const test::SafetensorsFile file = test::read_safetensors_bytes(bytes_of({{"a", values}}));
  CHECK(at::equal(find(file, "a").view(at::kLong), values.view(at::kLong)));
}

TEST_CASE("non-contiguous tensors and parameters are written by value", "[safetensors]") {
  const at::Tensor base = at::arange(24, at::kFloat).reshape({4, 6});
  const at::Tensor parameter = at::ones({2}).set_requires_grad(true);
  const Tensors tensors = {{"transposed", base.t()},
                           {"column", base.select(1, 2)},
                           {"tail", base.flatten().slice(0, 20)},
                           {"expanded", at::ones({1, 3}).expand({5, 3})},
                           {"parameter", parameter}};
  const test::SafetensorsFile file = test::read_safetensors_bytes(bytes_of(tensors));
  for (const NamedTensor& entry : tensors) {
    INFO(entry.name);
    CHECK(same(find(file, entry.name), entry.tensor));
    CHECK(find(file, entry.name).is_contiguous());
  }
}

TEST_CASE("the bytes do not depend on the order, and are these", "[safetensors]") {
  const NamedTensor a{"a", at::ones({2}, at::kByte)};
  const NamedTensor b{"b", at::zeros({1}, at::kFloat)};
  const std::string bytes = bytes_of({a, b}, {{"k", "v"}});
  CHECK(bytes == bytes_of({b, a}, {{"k", "v"}}));
  const std::string header =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const std::string padding(bytes.size() - 8 - header.size() - 6, ' ');
  CHECK(padding.size() < 8);
  CHECK((header.size() + padding.size()) % 8 == 0);
  const std::string length = {static_cast<char>(header.size() + padding.size()), 0, 0, 0, 0, 0, 0, 0};
  CHECK(bytes == length + header + padding + std::string("\0\0\0\0\1\1", 6));
}

TEST_CASE("all data are aligned to their element size", "[safetensors]") {
  std::vector<std::string> order;
  for (const NamedTensor& entry : test::read_safetensors_bytes(bytes_of(every_dtype())).tensors) {
    order.push_back(entry.name);
  }
  CHECK(order ==
        std::vector<std::string>{"f64", "i64", "f32", "i32", "bf16", "f16", "i16", "bool", "i8", "u8"});
}

TEST_CASE("metadata and names of any characters come back", "[safetensors]") {
  const Metadata metadata = {{"format", "pt"}, {"q\"uote\\", "line\nbreak"}, {"", "é"}};
  const Tensors tensors = {{"na\"me\n", at::ones({1})}, {"größe", at::ones({1})}, {"", at::ones({1})}};
  const test::SafetensorsFile file = test::read_safetensors_bytes(bytes_of(tensors, metadata));
  CHECK(file.metadata == metadata);
  for (const NamedTensor& entry : tensors) CHECK(same(find(file, entry.name), entry.tensor));
}

TEST_CASE("a file without tensors is a file", "[safetensors]") {
  const test::SafetensorsFile file = test::read_safetensors_bytes(bytes_of({}));
  CHECK(file.tensors.empty());
}

TEST_CASE("what cannot be stored is refused before anything is written", "[safetensors]") {
  const auto write = [](const Tensors& tensors) { return bytes_of(tensors); };
  const at::Tensor one = at::ones({1});
  CHECK_THROWS_WITH(write({{"a", one}, {"a", one}}), "two tensors have the name \"a\"");
  CHECK_THROWS_WITH(write({{"__metadata__", one}}),
                    "the name \"__metadata__\" is reserved in safetensors files");
  CHECK_THROWS_WITH(write({{"a", at::Tensor()}}), "tensor \"a\" is undefined");
  CHECK_THROWS_WITH(
      write({{"a", at::ones({1}, at::kComplexFloat)}}),
      "tensor \"a\" has dtype ComplexFloat; safetensors files hold F64 F32 F16 BF16 I64 I32 I16 "
      "I8 U8 BOOL");
  CHECK_THROWS_WITH(write({{"\xff", one}}),
                    "\"\xef\xbf\xbd\" is not UTF-8, safetensors files hold nothing else");
  CHECK_THROWS_AS(write({{"a", at::Tensor()}}), std::invalid_argument);
}

TEST_CASE("files are read from the file system", "[safetensors]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  const Tensors tensors = every_dtype();
  const auto out = files.create(folder / "a");
  write_safetensors(*out, tensors, {{"step", "7"}});
  out->close();
  const test::SafetensorsFile file = test::read_safetensors(files, folder / "a");
  CHECK(file.metadata == Metadata{{"step", "7"}});
  for (const NamedTensor& entry : tensors) CHECK(same(find(file, entry.name), entry.tensor));

  const std::string short_file = folder.write("short", "12345").string();
  CHECK_THROWS_WITH(test::read_safetensors(files, short_file),
                    short_file +
                        ": 5 bytes are too few for a safetensors file, which begins with 8 bytes of header "
                        "length; get the file again, or write it again");
}

TEST_CASE("a tensor that is given some values at a time gives the same file, and is read in part",
          "[safetensors]") {
  const at::Tensor whole = at::arange(24, at::kFloat).reshape({4, 6});
  const auto file_of = [](const WrittenTensor& tensor) {
    test::MemoryFileSystem files;
    write_given_tensors(*files.create("/a"), {tensor, {"b", at::ones({2}, at::kByte)}});
    return files.read("/a");
  };
  const auto given_as = [&](const std::vector<std::pair<int64_t, int64_t>>& parts) {
    const auto give = [=](const WrittenTensor::Take& take) {
      for (const auto& [begin, elements] : parts) take(whole.view(-1).narrow(0, begin, elements));
    };
    return WrittenTensor("a", at::kFloat, {4, 6}, give, {});
  };
  const std::string file = file_of({"a", whole});
  CHECK(file_of(given_as({{0, 7}, {7, 0}, {7, 17}})) == file);
  CHECK_THROWS_AS(file_of(given_as({{0, 7}, {7, 16}})), std::logic_error);
  CHECK_THROWS_AS(file_of(given_as({})), std::logic_error);

  test::MemoryFileSystem files;
  files.create("/a")->write(file.data(), file.size());
  StoredTensor stored = open_safetensors(files, "/a")[0];
  REQUIRE(stored.name == "a");
  const at::Tensor wanted = whole.view(-1).narrow(0, 5, 8);
  const auto refused = [] { throw FileError("not finite"); };
  const StoredTensor part = part_of(stored, 5, 8), checked = part_of(finite_only(stored, refused), 5, 8);
  CHECK(part.shape == std::vector<int64_t>{8});
  CHECK(same(part.read(), wanted));
  at::Tensor into = at::zeros({8});
  copy_stored(checked, into);
  CHECK(same(into, wanted));
  stored.read_range = nullptr;  // of a file that holds the values otherwise
  CHECK(same(part_of(stored, 5, 8).read(), wanted));
  CHECK(part_of(stored, 24, 0).read().numel() == 0);
}

TEST_CASE("tensors are sent to another process in the order of its file, and cut into parts in it",
          "[safetensors]") {
  std::vector<std::string> sent;
  const auto tensor = [&](const std::string& name, c10::ScalarType type, int64_t elements, bool is_divided) {
    const auto send = [&sent, name](int64_t to) { sent.push_back(name + " to " + std::to_string(to)); };
    return WrittenTensor(
        name, type, {elements}, [](const WrittenTensor::Take&) {},
        is_divided ? send : std::function<void(int64_t)>());
  };
  const std::vector<WrittenTensor> tensors = {
      tensor("c", at::kByte, 8, true), tensor("a", at::kFloat, 5, true), tensor("d", at::kFloat, 1, false),
      tensor("b", at::kFloat, 2, true)};
  send_given_tensors(2, tensors);
  CHECK(sent == std::vector<std::string>{"a to 2", "b to 2", "c to 2"});

  const auto names_in = [&](uint64_t max_bytes) {
    std::vector<std::string> names;
    for (const std::vector<WrittenTensor>& part : in_parts(tensors, max_bytes)) {
      names.emplace_back();
      for (const WrittenTensor& one : part) names.back() += one.name;
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(names_in(40) == Names{"abdc"});  // 20, 8, 4 and 8 bytes
  CHECK(names_in(39) == Names{"abd", "c"});
  CHECK(names_in(20) == Names{"a", "bdc"});
  CHECK(names_in(12) == Names{"a", "bd", "c"});  // "a" alone has more
  CHECK(in_parts({}, 1).size() == 1);
}

TEST_CASE("a value that is not finite is found in the part that is read", "[safetensors]") {
  at::Tensor whole = at::ones({10});
  whole[7] = std::nan("");
  test::MemoryFileSystem files;
  write_safetensors(*files.create("/a"), {{"a", whole}});
  const StoredTensor stored =
      finite_only(open_safetensors(files, "/a")[0], [] { throw FileError("not finite"); });
  CHECK(part_of(stored, 0, 7).read().numel() == 7);
  CHECK_THROWS_AS(part_of(stored, 7, 3).read(), FileError);
}

TEST_CASE("a file of the reference implementation is read", "[safetensors]") {
  const test::SafetensorsFile file =
      test::read_safetensors(posix_file_system(), std::string(DTK_FIXTURES) + "/dit_tiny.safetensors");
  CHECK(find(file, "t").scalar_type() == at::kLong);
  CHECK(find(file, "y").sizes() == at::IntArrayRef({3}));
  // The figures of dit_tiny.json.
  const at::Tensor loss = (find(file, "out") - find(file, "target")).to(at::kDouble).square().mean();
  CHECK(loss.item<double>() == Approx(1.9791131359148395).epsilon(1e-6));
  const at::Tensor norms = find(file, "grad.norms_sorted_by_name");
  CHECK(norms.norm().item<double>() == Approx(1.9295161837107877).epsilon(1e-6));
}

}  // namespace dtk
