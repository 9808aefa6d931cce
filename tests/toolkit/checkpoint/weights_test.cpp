// Weights from wherever they are kept: which set is taken, what is converted, what is no source of weights.
#include <ATen/ATen.h>

#include <limits>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/torch_bytes.h"
#include "support/runs/weights_world.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/torch_file.h"

namespace dtk {
namespace {

using namespace test;

const std::string allowed =
    "allowed: a safetensors file, a file of torch.save, a list of such (*.index.json), or the folder of a "
    "checkpoint, a run or adapters";
}  // namespace

TEST_CASE("weights: every kind of file gives the same tensors") {
  World world;
  const Named tensors = changed_parameters(tiny_model());
  write_torch_file(*world.files.create("/w.pt"), tensors);
  write_safetensors(*world.files.create("/w.safetensors"), tensors);
  for (const std::string path : {"/w.pt", "/w.safetensors"}) {
    const Weights weights = open_weights(world.files, request(path));
    CHECK(weights.name == "the weights of " + path);
    CHECK(same(read_all(weights), tensors));
    CHECK(conversion_note(weights).empty());
    const models::Dit model = tiny_model(2);
    copy_weights(weights, model.parameters());
    for (const NamedTensor& entry : tensors) {
      const auto found = std::find_if(model.parameters().begin(), model.parameters().end(),
                                      [&](const auto& one) { return one.first == entry.name; });
      CHECK(at::equal(found->second, entry.tensor));
    }
  }
}

TEST_CASE("weights: half precision and doubles are converted, with a line that says so") {
  World world;
  const models::Dit model = tiny_model();
  Named tensors = changed_parameters(model), halves;
  for (const NamedTensor& entry : tensors) halves.push_back({entry.name, entry.tensor.to(at::kHalf)});
  write_torch_file(*world.files.create("/w.pt"), with(halves, class_table, at::ones({5, 16}, at::kDouble)));
  const Weights weights = open_weights(world.files, request("/w.pt"));
  CHECK(conversion_note(weights) ==
        "31 tensors converted from float16 to float32; 1 tensor converted from float64 to float32");
  copy_weights(weights, model.parameters());
  for (size_t i = 0; i < halves.size(); ++i) {
    const auto& [name, parameter] = model.parameters()[i];
    INFO(name);
    CHECK(parameter.scalar_type() == at::kFloat);
    CHECK(at::equal(parameter, name == class_table ? at::ones({5, 16}) : halves[i].tensor.to(at::kFloat)));
  }
}

TEST_CASE("weights: which set of a file of torch.save is taken") {
  using test::pickled;
  using test::PickledItem;
  World world;
  const std::string tensor = pickled(test::PickledTensor{});
  const auto set = [&](const std::string& name) { return pickled(std::vector<PickledItem>{{name, tensor}}); };
  const auto write = [&](const std::vector<PickledItem>& items) {
    world.write("/w.pt", test::torch_file_bytes(pickled(items), {std::string(16, '\0')}));
  };
  const auto chosen = [&](const std::string& key = "") {
    const Weights weights = open_weights(world.files, request("/w.pt", key));
    return weights.name + ": " + weights.tensors.front().name;
  };
  const auto refused = [&](const std::string& key = "") {
    return test::error_text<ConfigError>([&] { chosen(key); });
  };
  write({{"model", set("m")}, {"ema", set("e")}, {"args", "K\1"}});
  CHECK(chosen() == "the \"ema\" weights of /w.pt: e");
  CHECK(chosen("model") == "the \"model\" weights of /w.pt: m");
  CHECK(refused("args") == "--key args: /w.pt has no weights under this key; allowed: \"model\" or \"ema\"");
  write({{"opt", "}"}, {"model", set("m")}, {"other", set("o")}});
  CHECK(chosen() == "the \"model\" weights of /w.pt: m");
  write({{"state_dict", set("s")}, {"other", set("o")}});
  CHECK(chosen() == "the \"state_dict\" weights of /w.pt: s");
  write({{"epoch", "K\1"}, {"net", set("n")}});
  CHECK(chosen() == "the \"net\" weights of /w.pt: n");
  write({{"a", set("a")}, {"b", set("b")}});
  CHECK(refused() ==
        "--weights /w.pt: it holds several sets of weights: \"a\" and \"b\"; choose one with --key");
  CHECK(chosen("b") == "the \"b\" weights of /w.pt: b");
  write({{"w", tensor}, {"a", set("a")}});
  CHECK(chosen() == "the weights of /w.pt: w");
  CHECK(refused("w") == "--key w: /w.pt has no weights under this key; allowed: \"a\"");
  write({{"w", tensor}});
  CHECK(chosen() == "the weights of /w.pt: w");
  CHECK(refused("ema") == "--key ema: /w.pt is one set of weights without a key; remove it");
}

TEST_CASE("weights: what is no source of weights") {
  World world;
  const auto refused = [&](const std::string& path, const std::string& key = "") {
    return test::error_text<ConfigError>([&] { open_weights(world.files, request(path, key)); });
  };
  CHECK(refused("/gone") == "--weights /gone: no such file or folder; " + allowed);
  world.files.create_directories("/empty/inside");
  CHECK(
      refused("/empty") ==
      "--weights /empty: no complete checkpoint in /empty/checkpoints; name a checkpoint's folder, or a run "
      "folder to use its latest");
  CHECK(refused("/empty/step-9") ==
        "--weights /empty/step-9: no such folder, and no checkpoint beside it; name a checkpoint's folder, "
        "or a "
        "run folder to use its latest");
  write_safetensors(*world.files.create("/w.safetensors"), {});
  CHECK(refused("/w.safetensors", "ema") ==
        "--key ema: /w.safetensors is a safetensors file, which holds one set of weights without a key; "
        "remove it");
}

TEST_CASE("weights: values that are not finite are refused, whatever holds them") {
  World world;
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  const auto message = [](const std::string& path) {
    return "--weights " + path +
           ": tensor \"bad\" holds a value that is not finite in float32 (NaN, infinite or too large), as a "
           "run "
           "writes that diverged; name weights of an earlier step";
  };
  const auto refused = [&](const std::string& path, const at::Tensor& values) {
    const Named tensors = {{"good", at::full({3}, -65504.0)}, {"none", at::zeros({0})}, {"bad", values}};
    if (path == "/w.pt")
      write_torch_file(*world.files.create(path), tensors);
    else
      write_safetensors(*world.files.create(path), tensors);
    return test::error_text<DataError>([&] { read_all(open_weights(world.files, request(path))); });
  };
  for (const std::string path : {"/w.pt", "/w.safetensors"}) {
    for (const float value : {nan, infinity, -infinity}) {
      for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
        at::Tensor values = at::ones({2, 3}, type);
        values.select(0, 1).fill_(value);
        CHECK(refused(path, values) == message(path));
      }
    }
    CHECK(refused(path, at::full({2}, -1e300, at::kDouble)) == message(path));
  }
}

TEST_CASE("weights: a file that is none of weights, or a damaged one") {
  World world;
  const auto refused = [&](const std::string& path, const std::string& bytes) {
    world.write(path, bytes);
    const std::string text =
        test::error_text<DataError>([&] { read_all(open_weights(world.files, request(path))); });
    const std::string place = "--weights " + path + ": ";
    return text.starts_with(place) ? text.substr(place.size()) : "without its place: " + text;
  };
  const std::string none = "no file of weights; " + allowed + "; name one of these";
  CHECK(refused("/w.text", "half a file") == none);
  CHECK(refused("/base.toml", "[train]\nout = \"runs/base\"\nsteps = 100000\n") == none);
  CHECK(refused("/short", "12345678") == none);
  CHECK(refused("/none", "") == none);
  const std::string damaged = " does, so it is damaged; " + allowed + "; get the file again, or name another";
  for (const std::string extension : {"pt", "pth", "ckpt", "bin"}) {
    CHECK(refused("/w." + extension, "half a file") == "it does not begin as a file of torch.save" + damaged);
  }
  CHECK(refused("/w.safetensors", "half a file") == "it does not begin as a safetensors file" + damaged);
  const std::string again = "; get the file again, or write it again";
  CHECK(
      refused("/w.safetensors", std::string("d\0\0\0\0\0\0\0{", 9)) ==
      "/w.safetensors: the header length is 100 bytes, but only 1 follow: the file is truncated or damaged" +
          again);
  CHECK(refused("/w.pt", "PK\3\4 and no more of the archive") ==
        "/w.pt: no zip directory at the end of the file, so it is cut off, or not a file of torch.save" +
            again + " with torch.save");
  write_torch_file(*world.files.create("/good.pt"), {{"a", at::full({2}, 1.5)}});
  std::string changed = world.files.read("/good.pt");
  changed[changed.find(std::string("\0\0\xc0\x3f", 4))] ^= 1;
  CHECK(refused("/w.pt", changed) ==
        "/w.pt: zip entry \"archive/data/0\" has changed since it was written (its CRC-32 differs)" + again +
            " with torch.save");
  CHECK(refused("/w.pt", test::torch_file_bytes(
                             test::pickled(std::vector<test::PickledItem>{{"epoch", "K\1"}}), {})) ==
        "it holds no named tensors but a dict of \"epoch\"; allowed: a state dict, or a dict of state dicts "
        "such as {\"model\": ..., \"ema\": ...}; write it so with torch.save");
}

}  // namespace dtk
