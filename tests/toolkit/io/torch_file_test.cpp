// Files of torch.save: what is written comes back, every layout of a tensor, sets of weights, and hostile
// files. That PyTorch itself reads and writes the same is weights_exchange_test.py.
#include "toolkit/io/torch_file.h"

#include <ATen/ATen.h>

#include <cstring>
#include <stdexcept>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "support/files/torch_bytes.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using test::pickled;
using test::PickledItem;
using test::PickledTensor;
using test::torch_file_bytes;
using Strings = std::vector<std::string>;

using test::write_again;

class OpenFile {
 public:
  explicit OpenFile(const std::string& bytes) {
    files_.create("/f.pt")->write(bytes.data(), bytes.size());
    file_.emplace(files_, "/f.pt");
  }
  const TorchFile* operator->() const { return &*file_; }
  at::Tensor read(const std::string& name, const std::string& key = "") const {
    for (const StoredTensor& tensor : file_->tensors(key)) {
      if (tensor.name == name) return tensor.read();
    }
    throw std::out_of_range("no tensor " + name);
  }

 private:
  test::MemoryFileSystem files_;
  std::optional<TorchFile> file_;
};

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

const std::string four = floats({1, 2, 3, 4});

/// The file with one tensor "w" over the storage 1 2 3 4.
std::string one_tensor(const PickledTensor& tensor = {}) {
  return torch_file_bytes(pickled(std::vector<PickledItem>{{"w", pickled(tensor)}}), {four});
}

std::string torch_refusal(const std::string& bytes) {
  return test::error_text<FileError>([&] {
    const OpenFile file(bytes);
    for (const std::string& key : file->keys()) {
      for (const StoredTensor& tensor : file->tensors(key)) tensor.read();
    }
  });
}

std::vector<float> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kFloat).flatten();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

std::string written(const std::vector<NamedTensor>& tensors) {
  test::MemoryFileSystem files;
  write_torch_file(*files.create("/f.pt"), tensors);
  return files.read("/f.pt");
}

Strings names(const std::vector<StoredTensor>& tensors) {
  Strings all;
  for (const StoredTensor& tensor : tensors) all.push_back(tensor.name);
  return all;
}

}  // namespace

TEST_CASE("torch file: what is written comes back as it was, whatever its dtype and layout") {
  const at::Tensor numbers = at::arange(-6, 6, at::kDouble).reshape({3, 4}) * 0.5;
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                                    at::kShort, at::kChar, at::kBool}) {
    tensors.push_back({c10::toString(type), numbers.to(type)});
  }
  tensors.push_back({"byte", at::arange(250, 256, at::kByte)});
  tensors.push_back({"transposed", numbers.to(at::kFloat).t()});
  tensors.push_back({"slice", numbers.to(at::kFloat).slice(1, 1, 4, 2)});
  tensors.push_back({"scalar", at::scalar_tensor(2.5)});
  tensors.push_back({"empty", at::empty({3, 0, 2})});
  const OpenFile file(written(tensors));
  CHECK(file->keys() == Strings{""});
  const std::vector<StoredTensor> stored = file->tensors("");
  REQUIRE(stored.size() == tensors.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    INFO(tensors[i].name);
    const at::Tensor seen = stored[i].read();
    CHECK(stored[i].name == tensors[i].name);
    CHECK(stored[i].type == tensors[i].tensor.scalar_type());
    CHECK(stored[i].shape == tensors[i].tensor.sizes().vec());
    CHECK(seen.is_contiguous());
    CHECK(seen.scalar_type() == tensors[i].tensor.scalar_type());
    CHECK(at::equal(seen, tensors[i].tensor));
  }
  CHECK(written(tensors) == written(tensors));
}

TEST_CASE("torch file: what cannot be written is refused") {
  const at::Tensor one = at::ones({1});
  CHECK(test::error_text<std::invalid_argument>([&] {
          written({{"a", one}, {"a", one}});
        }) == "two tensors have the name \"a\"");
  CHECK(test::error_text<std::invalid_argument>([&] {
          written({{"a", one.to(at::kComplexFloat)}});
        }) ==
        "tensor \"a\" has dtype ComplexFloat; written are float64 float32 float16 bfloat16 int64 int32 int16 "
        "int8 uint8 bool");
}

TEST_CASE("torch file: strides, offsets and shared storages") {
  CHECK(values(OpenFile(one_tensor()).read("w")) == std::vector<float>{1, 2, 3, 4});
  CHECK(values(OpenFile(one_tensor({.strides = {1, 2}})).read("w")) == std::vector<float>{1, 3, 2, 4});
  CHECK(values(OpenFile(one_tensor({.offset = 1, .sizes = {3}, .strides = {1}})).read("w")) ==
        std::vector<float>{2, 3, 4});
  CHECK(values(OpenFile(one_tensor({.offset = 1, .sizes = {2}, .strides = {2}})).read("w")) ==
        std::vector<float>{2, 4});
  CHECK(values(OpenFile(one_tensor({.offset = 3, .sizes = {}, .strides = {}})).read("w")) ==
        std::vector<float>{4});
  CHECK(values(OpenFile(one_tensor({.offset = 3, .sizes = {3}, .strides = {0}})).read("w")) ==
        std::vector<float>{4, 4, 4});
  CHECK(values(OpenFile(one_tensor({.sizes = {1, 4}, .strides = {INT64_MAX, 1}})).read("w")).size() == 4);
  CHECK(OpenFile(one_tensor({.offset = 77, .sizes = {0, 5}, .strides = {5, 1}})).read("w").sizes() ==
        at::IntArrayRef({0, 5}));
  const OpenFile shared(torch_file_bytes(
      pickled(std::vector<PickledItem>{{"a", pickled(PickledTensor{})},
                                       {"b", pickled(PickledTensor{.sizes = {4}, .strides = {1}})}}),
      {four}));
  const at::Tensor a = shared.read("a");
  a.fill_(9);
  CHECK(values(shared.read("b")) == std::vector<float>{1, 2, 3, 4});  // each has its own memory
}

TEST_CASE("torch file: parameters, and tensors over storages of bytes") {
  const std::string parameter = "ctorch._utils\n_rebuild_parameter\n(" + pickled(PickledTensor{}) +
                                "\x88"
                                "ccollections\nOrderedDict\n)RtR";
  CHECK(values(OpenFile(torch_file_bytes(pickled(std::vector<PickledItem>{{"w", parameter}}), {four}))
                   .read("w")) == std::vector<float>{1, 2, 3, 4});
  const PickledTensor v3 = {.storage_class = "ctorch.storage\nUntypedStorage\n",
                            .elements = 16,
                            .function = "_rebuild_tensor_v3",
                            .last = "ctorch\nfloat32\n"};
  CHECK(values(OpenFile(one_tensor(v3)).read("w")) == std::vector<float>{1, 2, 3, 4});
  PickledTensor unknown = v3;
  unknown.last = "ctorch\nfloat8_e5m2\n";
  CHECK(torch_refusal(one_tensor(unknown)) ==
        "/f.pt: tensor \"w\": its dtype is \"torch.float8_e5m2\"; read are float64 float32 float16 bfloat16 "
        "int64 int32 int16 int8 uint8 bool; convert it to one of these and write it again with torch.save");
}

TEST_CASE("torch file: sets of weights by key; what is no tensor is left alone") {
  const std::string tensor = pickled(PickledTensor{});
  const std::string set = pickled(std::vector<PickledItem>{{"w", tensor}, {"count", "K\3"}});
  const std::string name_space = "cargparse\nNamespace\n)\x81}(X\1" + std::string("\0\0\0", 3) + "aK\1ub";
  const std::string evil = "cos\nsystem\n" + pickled(std::string("touch /tmp/dtk-was-here")) + "\x85R";
  const OpenFile file(torch_file_bytes(
      pickled(std::vector<PickledItem>{{"model", set},
                                       {"ema", set},
                                       {"opt", pickled(std::vector<PickledItem>{{"state", "}"}})},
                                       {"args", name_space},
                                       {"hook", evil}}),
      {four}));
  CHECK(file->keys() == Strings{"model", "ema"});
  CHECK(names(file->tensors("ema")) == Strings{"w"});
  CHECK(values(file.read("w", "model")) == std::vector<float>{1, 2, 3, 4});
  CHECK_THROWS_AS(file->tensors("opt"), std::invalid_argument);
  CHECK(file->content() == "a dict of \"model\", \"ema\", \"opt\", \"args\" and \"hook\"");
  CHECK_FALSE(std::filesystem::exists("/tmp/dtk-was-here"));

  const OpenFile both(
      torch_file_bytes(pickled(std::vector<PickledItem>{{"w", tensor}, {"ema", set}}), {four}));
  CHECK(both->keys() == Strings{"", "ema"});
  CHECK(OpenFile(torch_file_bytes(evil, {}))->keys().empty());
  CHECK(OpenFile(torch_file_bytes(evil, {}))->content() == "an object of \"os.system\"");
  CHECK(OpenFile(torch_file_bytes(tensor, {four}))->content() == "a tensor without a name");
  CHECK(OpenFile(torch_file_bytes("K\1", {}))->content() == "an object that is no dict");
  CHECK(OpenFile(torch_file_bytes("}", {}))->content() == "an empty dict");
}

TEST_CASE("torch file: a prefix that all names share is a wrapper's") {
  const std::string tensor = pickled(PickledTensor{});
  const auto seen = [&](const Strings& stored) {
    std::vector<PickledItem> items;
    for (const std::string& name : stored) items.push_back({name, tensor});
    return names(OpenFile(torch_file_bytes(pickled(items), {four}))->tensors(""));
  };
  CHECK(seen({"module.a", "module.b.c"}) == Strings{"a", "b.c"});
  CHECK(seen({"_orig_mod.module.a", "_orig_mod.module.b"}) == Strings{"a", "b"});
  CHECK(seen({"module.a", "b"}) == Strings{"module.a", "b"});
  CHECK(torch_refusal(torch_file_bytes(pickled(std::vector<PickledItem>{{"a", tensor}, {"a", tensor}}),
                                       {four})) == "/f.pt: tensor \"a\" is there twice" + write_again);
}

TEST_CASE("torch file: tensors that lie beyond their storage, or overflow") {
  const std::string w = "/f.pt: tensor \"w\": ";
  CHECK(torch_refusal(one_tensor({.offset = 1})) ==
        w + "it reaches to byte 20 of its storage, which has 16" + write_again);
  CHECK(torch_refusal(one_tensor({.strides = {3, 1}})) ==
        w + "it reaches to byte 20 of its storage, which has 16" + write_again);
  CHECK(torch_refusal(one_tensor({.sizes = {5}, .strides = {1}})) ==
        w + "it reaches to byte 20 of its storage, which has 16" + write_again);
  const std::string large = w + "it is too large to address";
  CHECK(torch_refusal(one_tensor({.offset = INT64_MAX})) == large + write_again);
  CHECK(torch_refusal(one_tensor({.offset = INT64_MAX / 4})) == large + write_again);
  CHECK(torch_refusal(one_tensor({.strides = {INT64_MAX, 1}})) == large + write_again);
  CHECK(torch_refusal(one_tensor({.sizes = {INT64_MAX, 2}, .strides = {0, 0}})) == large + write_again);
  CHECK(torch_refusal(one_tensor({.sizes = {0, INT64_MAX}, .strides = {1, 1}})) == large + write_again);
  CHECK(torch_refusal(one_tensor({.sizes = {3, INT64_MAX / 2}, .strides = {INT64_MAX / 2, 1}})) ==
        large + write_again);
  CHECK(torch_refusal(one_tensor({.sizes = {1'000'000'000}, .strides = {0}})) ==
        w + "it repeats elements to 4000000000 bytes, more than the whole file has" + write_again);
  const std::string whole = " is not a whole number from 0 to 2^63-1";
  CHECK(torch_refusal(one_tensor({.offset = -1})) == w + "its offset" + whole + write_again);
  CHECK(torch_refusal(one_tensor({.sizes = {-2, -2}})) == w + "its size" + whole + write_again);
  CHECK(torch_refusal(one_tensor({.strides = {-2, 1}})) == w + "its stride" + whole + write_again);
  CHECK(torch_refusal(one_tensor({.strides = {1}})) ==
        w + "it has another number of strides than of sizes" + write_again);
  const std::vector<int64_t> many(65, 1);
  CHECK(torch_refusal(one_tensor({.sizes = many, .strides = many})) ==
        w + "it has 65 dimensions; at most 64 are allowed" + write_again);
}

TEST_CASE("torch file: descriptions that torch.save never writes") {
  const std::string w = "/f.pt: tensor \"w\": ";
  CHECK(torch_refusal(one_tensor({.storage = "1"})) ==
        w + "its storage \"1\" is not in the file" + write_again);
  CHECK(torch_refusal(one_tensor({.storage = "../data.pkl"})) ==
        w + "its storage \"../data.pkl\" is not in the file" + write_again);
  CHECK(
      torch_refusal(one_tensor({.storage_class = "cos\nsystem\n"})) ==
      w + "its storage is a \"os.system\"; read are float64 float32 float16 bfloat16 int64 int32 int16 int8 "
          "uint8 bool; convert it to one of these and write it again with torch.save");
  const auto call = [](const std::string& arguments) {
    const std::string pickle = "ctorch._utils\n_rebuild_tensor_v2\n" + arguments + "R";
    return torch_file_bytes(pickled(std::vector<PickledItem>{{"w", pickle}}), {four});
  };
  CHECK(torch_refusal(call(")")) == w + "its description is incomplete" + write_again);
  CHECK(torch_refusal(call("]")) == w + "its description is incomplete" + write_again);
  const std::string rest =
      pickled(int64_t{0}) + pickled(std::vector<int64_t>{}) + pickled(std::vector<int64_t>{}) + "\x89)t";
  CHECK(torch_refusal(call("(N" + rest)) ==
        w + "its storage is not described as torch.save does" + write_again);
  CHECK(torch_refusal(call("(NQ" + rest)) ==
        w + "its storage is not described as torch.save does" + write_again);
  CHECK(torch_refusal(call("()Q" + rest)) ==
        w + "its storage is not described as torch.save does" + write_again);
  CHECK(torch_refusal(torch_file_bytes(
            pickled(std::vector<PickledItem>{
                {"w", pickled(PickledTensor{.storage_class = "ctorch\nBoolStorage\n"})}}),
            {"\1\1\1\2"})) == "/f.pt: tensor \"w\" of bool holds a byte other than 0 and 1" + write_again);
}

TEST_CASE("torch file: archives that are something else") {
  using test::zip_bytes;
  CHECK(torch_refusal("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.") ==
        "/f.pt: it is in the format that torch.save wrote before PyTorch 1.6, which is not read; write it "
        "again in Python: torch.save(torch.load(\"/f.pt\", map_location=\"cpu\"), \"new.pt\")");
  CHECK(torch_refusal(zip_bytes({{.name = "a/b", .data = ""}})) ==
        "/f.pt: this zip archive has no data.pkl, so torch.save did not write it; allowed: what "
        "torch.save(model.state_dict(), FILE) writes");
  CHECK(torch_refusal(zip_bytes({{.name = "a/data.pkl", .data = ""}, {.name = "b/data.pkl", .data = ""}})) ==
        "/f.pt: this zip archive has data.pkl in several folders: a/, b/; allowed: one" + write_again);
  CHECK(
      torch_refusal(torch_file_bytes("}", {}, {{.name = "m/constants.pkl", .data = ""}})) ==
      "/f.pt: it is a TorchScript archive, which is not read; save the model's state_dict() with torch.save");
  CHECK(torch_refusal(torch_file_bytes("}", {}, {{.name = "m/byteorder", .data = "big"}})) ==
        "/f.pt: its byte order is \"big\"; read is \"little\"; write it again with torch.save on a "
        "little-endian machine");
  CHECK(torch_refusal(zip_bytes({{.name = "m/data.pkl", .data = "\x80\x02}"}})) ==
        "/f.pt: data.pkl, byte 3: the pickle ends within an instruction" + write_again);
}

TEST_CASE("torch file: cut off anywhere, or with any bit changed, it is refused or reads the same") {
  const std::string whole = written({{"w", at::arange(6, at::kFloat).reshape({2, 3})}, {"b", at::ones({3})}});
  for (size_t length = 0; length < whole.size(); ++length) {
    INFO(length);
    CHECK(torch_refusal(whole.substr(0, length)) != "(nothing was thrown)");
  }
  int refused = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    INFO("bit " << bit);
    try {
      const OpenFile file(changed);
      const std::vector<float> w = values(file.read("w")), b = values(file.read("b"));
      CHECK(w == std::vector<float>{0, 1, 2, 3, 4, 5});
      CHECK(b == std::vector<float>{1, 1, 1});
    } catch (const FileError&) {
      ++refused;
    }
  }
  CHECK(refused > 4000);
}

TEST_CASE("torch file: a damaged part of a storage is noticed though only another part is read") {
  std::string bytes = one_tensor({.sizes = {1}, .strides = {1}});
  CHECK(values(OpenFile(bytes).read("w")) == std::vector<float>{1});
  const size_t data = bytes.find(four);
  bytes[data + 15] ^= 1;
  CHECK(torch_refusal(bytes) ==
        "/f.pt: zip entry \"m/data/0\" has changed since it was written (its CRC-32 differs)" + write_again);
}

}  // namespace dtk
