// How a run begins with given weights, goes on without their file, and how its weights are written for
// others.
#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/runs/weights_world.h"
#include "toolkit/commands/export.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/io/torch_file.h"

namespace dtk {
namespace {

using namespace test;

/// Starts from `path` and changes nothing: this learning rate is 0 in fp32.
LoadedConfig started_from(const std::string& path, const std::string& out, const std::string& key = "") {
  LoadedConfig loaded = tiny(out);
  loaded.config.optimizer.lr = 1e-60;
  loaded.config.train.init_from = path;
  loaded.config.train.init_key = key;
  return loaded;
}

const std::string last = "/checkpoints/step-00000004/";

}  // namespace

TEST_CASE("weights: a run begins with given weights, and so does its average") {
  World world;
  const Named tensors = changed_parameters(tiny_model());
  write_torch_file(*world.files.create("/w.pt"), tensors);
  world.run(started_from("/w.pt", "new"));
  CHECK(same(world.read("new" + last + "model.safetensors"), tensors));
  CHECK(same(world.read("new" + last + "ema.safetensors"), without(tensors, "pos_embed")));
  CHECK(world.observer.heard("begins with the weights of /w.pt"));
  world.run(started_from("", "drawn"));
  CHECK_FALSE(same(world.read("drawn" + last + "model.safetensors"), tensors));
}

TEST_CASE("weights: a run begins with those of another run, its average's or its own") {
  World world;
  world.run(tiny("old"));
  const Named raw = world.read("old" + last + "model.safetensors");
  const Named averages = world.read("old" + last + "ema.safetensors");
  CHECK_FALSE(same(without(raw, "pos_embed"), averages));
  for (const std::string source : {"old", "old/checkpoints/step-00000004"}) {
    const std::string out = "from-" + source.substr(source.rfind('/') + 1);
    world.run(started_from(source, out));
    CHECK(same(without(world.read(out + last + "model.safetensors"), "pos_embed"), averages));
    CHECK(world.observer.heard("begins with the EMA weights of old/checkpoints/step-00000004"));
    world.run(started_from(source, out + "-raw", "model"));
    CHECK(same(world.read(out + "-raw" + last + "model.safetensors"), raw));
    CHECK(world.observer.heard("begins with the raw weights of old/checkpoints/step-00000004"));
  }
  CHECK_THROWS_WITH(world.run(started_from("old", "x", "best")),
                    "train.init_key = \"best\": no weights in old/checkpoints/step-00000004 have this key; "
                    "allowed: \"ema\" and \"model\", its raw weights");
  LoadedConfig other = started_from("old", "x");
  const int64_t heads = *dit::options_of(other.config).model.heads, changed = heads == 1 ? 2 : 1;
  dit::options_of(other.config).model.heads = changed;
  CHECK_THROWS_WITH(world.run(other),
                    "train.init_from = \"old\": the EMA weights of old/checkpoints/step-00000004 "
                    "were trained with model.heads = " +
                        std::to_string(heads) + ", and this model has " + std::to_string(changed) +
                        ", whose attention is another; set model.heads = " + std::to_string(heads));
  CHECK_FALSE(world.files.exists("x"));
  LoadedConfig plain = tiny("plain");
  plain.config.policies.ema.enabled = policies::Enabled::off;
  world.run(plain);
  CHECK_THROWS_WITH(
      world.run(started_from("plain", "x", "ema")),
      "train.init_key = \"ema\": plain/checkpoints/step-00000004 has no EMA weights, its run had no "
      "EMA; its raw weights have the key \"model\"");
  world.run(started_from("plain", "from-plain"));
  CHECK(world.observer.heard("begins with the raw weights of plain/checkpoints/step-00000004"));
}

TEST_CASE("weights: what does not fit is refused before the folder is touched") {
  World world;
  write_torch_file(*world.files.create("/w.pt"), {{"a", at::ones({1})}});
  CHECK_THROWS_AS(world.run(started_from("/w.pt", "new")), ConfigError);
  CHECK_FALSE(world.files.exists("new"));
  LoadedConfig gone = started_from("/gone.pt", "new");
  gone.locations["train.init_from"] = "a.toml:3:9";
  CHECK_THROWS_WITH(
      world.run(gone),
      "a.toml:3:9: train.init_from = \"/gone.pt\": no such file or folder; allowed: a safetensors "
      "file, a file of torch.save, a list of such (*.index.json), or the folder of a checkpoint, a run or "
      "adapters");
  CHECK(world.observer.messages.empty());
}

TEST_CASE("weights: a bad file to begin with is a data error that names the key and the file") {
  World world;
  const auto refused = [&](const std::string& path, const std::string& bytes) {
    world.write(path, bytes);
    LoadedConfig loaded = started_from(path, "new");
    loaded.locations["train.init_from"] = "a.toml:3:9";
    const std::string text = error_text<DataError>([&] { world.run(loaded); });
    CHECK_FALSE(world.files.exists("new"));
    return text;
  };
  const std::string allowed =
      "allowed: a safetensors file, a file of torch.save, a list of such (*.index.json), or the folder of a "
      "checkpoint, a run or adapters";
  CHECK(refused("/w.bad", "no weights") ==
        "a.toml:3:9: train.init_from = \"/w.bad\": no file of weights; " + allowed + "; name one of these");
  CHECK(refused("/w.pt", "no weights") ==
        "a.toml:3:9: train.init_from = \"/w.pt\": it does not begin as a file of torch.save does, so it is "
        "damaged; " +
            allowed + "; get the file again, or name another");
  CHECK(
      refused("/w.pt", "PK\3\4") ==
      "a.toml:3:9: train.init_from = \"/w.pt\": /w.pt: no zip directory at the end of the file, so it is cut "
      "off, or not a file of torch.save; get the file again, or write it again with torch.save");
}

TEST_CASE("weights: a damaged checkpoint to begin with is told with the key that names it") {
  World world;
  world.run(tiny("old"));
  world.write("old" + last + "model.safetensors", "");
  LoadedConfig loaded = started_from("old/checkpoints/step-00000004", "new");
  loaded.locations["train.init_from"] = "a.toml:3:9";
  CHECK_THAT(error_text<FileError>([&] { world.run(loaded); }),
             Catch::StartsWith("a.toml:3:9: train.init_from = \"old/checkpoints/step-00000004\": "
                               "old/checkpoints/step-00000004 is a damaged checkpoint:\n  model.safetensors "
                               "has 0 bytes instead of "));
}

TEST_CASE("weights: a resumed run needs those it began with no more, and cannot take others") {
  World world;
  write_torch_file(*world.files.create("/w.pt"), changed_parameters(tiny_model()));
  LoadedConfig loaded = started_from("/w.pt", "out");
  world.run(loaded);
  CHECK(world.files.read("out/config.toml").find("init_from = \"/w.pt\"") != std::string::npos);
  world.files.remove_all("/w.pt");
  loaded.config.train.steps = 6;
  CHECK(world.run(loaded, "latest").step == 6);
  CHECK(world.files.read("out/config.toml").find("init_from = \"/w.pt\"") != std::string::npos);
  CHECK(world.observer.heard("train.init_from is where this run once began; it goes on from its checkpoint"));
  LoadedConfig other = loaded;
  other.config.train.init_from = "/other.pt";
  CHECK_THROWS_WITH(world.run(other, "latest"),
                    Catch::Contains("train.init_from: \"/w.pt\" in the checkpoint, \"/other.pt\" now"));
}

TEST_CASE("weights: export writes the original's names in float32, from any source") {
  World world;
  const Named tensors = changed_parameters(tiny_model());
  Named halves;
  for (const NamedTensor& entry : without(tensors, "pos_embed")) {
    halves.push_back({"module." + entry.name, entry.tensor.to(at::kBFloat16)});
  }
  write_torch_file(*world.files.create("/w.pt"), halves);
  world.write("/config.toml", print_config(tiny("out")));
  ExportArguments arguments;
  arguments.checkpoint = "/w.pt";
  arguments.out = "/o.pt";
  const ExportedWeights weights = weights_to_export(world.files, arguments);
  CHECK(weights.conversion == "31 tensors converted from bfloat16 to float32");
  REQUIRE(weights.tensors.size() == tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    INFO(tensors[i].name);
    CHECK(weights.tensors[i].name == tensors[i].name);
    CHECK(weights.tensors[i].tensor.scalar_type() == at::kFloat);
    const bool fixed = tensors[i].name == "pos_embed";
    const at::Tensor expected =
        fixed ? tensors[i].tensor : tensors[i].tensor.to(at::kBFloat16).to(at::kFloat);
    CHECK(at::equal(weights.tensors[i].tensor, expected));
  }
  for (const std::string out : {"/o.pt", "/o.safetensors"}) {
    arguments.out = out;
    write_export(world.files, arguments, weights);
    CHECK(same(read_all(open_weights(world.files, request(out))), weights.tensors));
  }
  arguments.out = "/gone/o.pt";
  CHECK_THROWS_WITH(write_export(world.files, arguments, weights),
                    "--out /gone/o.pt: the folder /gone does not exist; create it");
}

}  // namespace dtk
