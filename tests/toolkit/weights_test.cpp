// Weights from wherever they are kept: which set is taken, whether they fit, how a run begins with them.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/export_command.h>
#include <dtk/toolkit/run.h>
#include <dtk/toolkit/safetensors.h>
#include <dtk/toolkit/torch_file.h>
#include <dtk/toolkit/weights.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/memory_file_system.h"
#include "support/tiny_run.h"
#include "support/torch_bytes.h"

namespace dtk {
namespace {

using Named = std::vector<NamedTensor>;

struct Silent final : RunObserver {
  void message(const std::string& text) override { messages.push_back(text); }
  void progress(const Progress&) override {}
  void sampling(int64_t, int64_t) override {}
  bool heard(const std::string& text) const {
    return std::find(messages.begin(), messages.end(), text) != messages.end();
  }
  std::vector<std::string> messages;
};

struct World {
  RunResult run(const LoadedConfig& loaded, const std::string& resume = "") {
    const auto from =
        resume.empty() ? std::filesystem::path() : find_checkpoint(files, resume, loaded.config.train.out);
    observer.messages.clear();
    return run_training(loaded, at::kCPU, from, test::tiny_data(), {files, clock, observer, {}});
  }
  void write(const std::string& path, const std::string& bytes) {
    files.create(path)->write(bytes.data(), bytes.size());
  }
  Named read(const std::string& path) { return read_safetensors(files, path).tensors; }

  test::MemoryFileSystem files;
  test::SteppingClock clock{0.001};
  Silent observer;
};

LoadedConfig tiny(const std::string& out) {
  LoadedConfig loaded;
  loaded.config = test::tiny_config();
  loaded.config.data.images = loaded.config.data.labels = "made up";
  loaded.config.train.out = out;
  loaded.config.train.steps = 4;
  loaded.config.policies.precision.cpu = "fp32";
  loaded.config.sample.per_class = 0;
  return loaded;
}

/// Starts from `path` and changes nothing: this learning rate is 0 in fp32.
LoadedConfig started_from(const std::string& path, const std::string& out, const std::string& key = "") {
  LoadedConfig loaded = tiny(out);
  loaded.config.optimizer.lr = 1e-60;
  loaded.config.train.init_from = path;
  loaded.config.train.init_key = key;
  return loaded;
}

const std::string last = "/checkpoints/step-00000004/";

WeightsRequest request(const std::string& path, const std::string& key = "") {
  return {path, key, "--weights " + path, "--key " + key, "--key"};
}

models::Dit tiny_model(uint64_t seed = 1, const RunConfig& config = test::tiny_config()) {
  return models::Dit(config.model, at::kCPU, at::detail::createCPUGenerator(seed));
}

/// The parameters of a model, at other values than those it is made with.
Named changed_parameters(const models::Dit& model) {
  Named tensors;
  for (const auto& [name, parameter] : model.parameters()) {
    const bool fixed = !parameter.requires_grad();
    tensors.push_back({name, fixed ? parameter.detach() : at::randn_like(parameter.detach())});
  }
  return tensors;
}

Named without(Named tensors, const std::string& name) {
  std::erase_if(tensors, [&](const NamedTensor& entry) { return entry.name == name; });
  return tensors;
}

Named with(Named tensors, const std::string& name, const at::Tensor& tensor) {
  for (NamedTensor& entry : tensors) {
    if (entry.name == name) entry.tensor = tensor;
  }
  return tensors;
}

bool same(const Named& a, const Named& b) {
  std::map<std::string, at::Tensor> left, right;
  for (const NamedTensor& entry : a) left[entry.name] = entry.tensor;
  for (const NamedTensor& entry : b) right[entry.name] = entry.tensor;
  return left.size() == right.size() && std::all_of(left.begin(), left.end(), [&](const auto& entry) {
           return right.count(entry.first) > 0 && at::equal(entry.second, right[entry.first]);
         });
}

Named read_all(const Weights& weights) {
  Named tensors;
  for (const StoredTensor& tensor : weights.tensors) tensors.push_back({tensor.name, tensor.read()});
  return tensors;
}

std::string misfit(const Named& tensors, const RunConfig& config = test::tiny_config()) {
  World world;
  write_torch_file(*world.files.create("/w.pt"), tensors);
  const Weights weights = open_weights(world.files, request("/w.pt"));
  return test::error_text<ConfigError>([&] { check_fit(weights, models::Dit(config.model, at::kMeta)); });
}

const std::string table = "y_embedder.embedding_table.weight";
const std::string not_of_model = "--weights /w.pt: the weights of /w.pt are not those of this model\n  ";

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
    load_weights(weights, model);
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
  write_torch_file(*world.files.create("/w.pt"), with(halves, table, at::ones({5, 16}, at::kDouble)));
  const Weights weights = open_weights(world.files, request("/w.pt"));
  CHECK(conversion_note(weights) ==
        "31 tensors converted from float16 to float32; 1 tensor converted from float64 to float32");
  load_weights(weights, model);
  for (size_t i = 0; i < halves.size(); ++i) {
    const auto& [name, parameter] = model.parameters()[i];
    INFO(name);
    CHECK(parameter.scalar_type() == at::kFloat);
    CHECK(at::equal(parameter, name == table ? at::ones({5, 16}) : halves[i].tensor.to(at::kFloat)));
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
  write({{"epoch", "K\1"}});
  CHECK(refused() ==
        "--weights /w.pt: it holds no named tensors but a dict of \"epoch\"; wanted: a state dict, or a dict "
        "of state "
        "dicts such as {\"model\": ..., \"ema\": ...}");
}

TEST_CASE("weights: what is no source of weights") {
  World world;
  const auto refused = [&](const std::string& path, const std::string& key = "") {
    return test::error_text<Error>([&] { open_weights(world.files, request(path, key)); });
  };
  CHECK(refused("/gone") ==
        "--weights /gone: no such file or folder; allowed: a safetensors file, a file of torch.save, or the "
        "folder of a checkpoint or a run");
  world.files.create_directories("/empty/inside");
  CHECK(refused("/empty") ==
        "--weights /empty: no complete checkpoint; name a checkpoint's folder, or a run folder to use its "
        "latest");
  world.write("/w.pt", "half a file");
  CHECK(refused("/w.pt") == "/w.pt: it does not begin as a file of torch.save does; is it damaged?");
  world.write("/w.text", "half a file");
  world.write("/w.safetensors", "half a file");
  CHECK(refused("/w.safetensors") ==
        "/w.safetensors: it does not begin as a safetensors file does; is it damaged?");
  const auto no_weights = [&](const std::string& path) {
    return test::error_text<ConfigError>([&] { open_weights(world.files, request(path)); }) ==
           "--weights " + path +
               ": no file of weights; allowed: a safetensors file, a file of torch.save, or the "
               "folder of a checkpoint or a run";
  };
  CHECK(no_weights("/w.text"));
  world.write("/base.toml", "[train]\nout = \"runs/base\"\nsteps = 100000\n");
  CHECK(no_weights("/base.toml"));
  world.write("/short", "12345678");
  CHECK(no_weights("/short"));
  write_safetensors(*world.files.create("/w.safetensors"), {});
  CHECK(refused("/w.safetensors", "ema") ==
        "--key ema: /w.safetensors is a safetensors file, which holds one set of weights without a key; "
        "remove it");
}

TEST_CASE("weights: pos_embed may be missing, nothing else may") {
  const Named tensors = changed_parameters(tiny_model());
  CHECK(misfit(tensors) == "(nothing was thrown)");
  CHECK(misfit(without(tensors, "pos_embed")) == "(nothing was thrown)");
  CHECK(misfit(without(tensors, "blocks.1.mlp.fc1.bias")) ==
        not_of_model + "missing (1): blocks.1.mlp.fc1.bias [64]");
  Named more = tensors;
  more.push_back({"extra\n", at::ones({2, 3})});
  CHECK(misfit(more) == not_of_model + "unknown (1): \"extra\\n\" [2, 3]");
  CHECK(misfit(with(tensors, "blocks.1.mlp.fc1.bias", at::ones({64}, at::kLong))) ==
        not_of_model + "not floating-point (1): blocks.1.mlp.fc1.bias holds Long");
  CHECK(misfit(with(tensors, "blocks.1.mlp.fc1.bias", at::ones({63}))) ==
        not_of_model + "of another shape (1): blocks.1.mlp.fc1.bias is [63], not [64]");
}

TEST_CASE("weights: of another size, with long lists shortened") {
  RunConfig other = test::tiny_config();
  other.model.depth = 1;
  other.model.hidden = 8;
  const std::string text = misfit(changed_parameters(tiny_model()), other);
  CHECK(text.starts_with(
      not_of_model +
      "unknown (10): \"blocks.1.attn.qkv.weight\" [48, 16], \"blocks.1.attn.qkv.bias\" [48], "
      "\"blocks.1.attn.proj.weight\" [16, 16], \"blocks.1.attn.proj.bias\" [16] and 6 more\n"
      "  of another shape (21): pos_embed is [1, 4, 16], not [1, 4, 8], "));
  CHECK(
      text.ends_with("\n  The weights have 2 blocks of 16 channels, this model 1 of 8; set model.depth and "
                     "model.hidden, or model.name"));
}

TEST_CASE("weights: of another number of classes") {
  const Named tensors = changed_parameters(tiny_model());
  const auto text = [&](int64_t rows, double dropout) {
    RunConfig config = test::tiny_config();
    config.model.class_dropout = dropout;
    return misfit(with(tensors, table, at::ones({rows, 16})), config);
  };
  const std::string shape = not_of_model + "of another shape (1): " + table + " is [";
  const std::string known = "\n  The weights' label table has 1001 rows: set model.classes = ";
  CHECK(text(1001, 0.1) ==
        shape + "1001, 16], not [5, 16]" + known +
            "1000, or 1001 with model.class_dropout = 0 if none of them is for the null label");
  CHECK(text(1001, 0.0) ==
        shape + "1001, 16], not [4, 16]" + known +
            "1001, or 1000 with model.class_dropout above 0 if one of them is for the null label");
}

TEST_CASE("weights: of another image size, and with a variance") {
  RunConfig larger = test::tiny_config();
  larger.model.image_size = 16;
  const Named large = changed_parameters(tiny_model(1, larger));
  CHECK(misfit(large) ==
        not_of_model +
            "of another shape (1): pos_embed is [1, 16, 16], not [1, 4, 16]\n"
            "  pos_embed is a fixed table with one row a token: the weights are for 16 tokens, this model "
            "has 4, "
            "(model.image_size / model.patch) squared; set model.image_size = 16 with model.patch = 4");
  RunConfig sigma = test::tiny_config();
  sigma.model.learn_sigma = true;
  CHECK(misfit(changed_parameters(tiny_model(1, sigma)))
            .ends_with("\n  The weights predict a variance too; set model.learn_sigma = true"));
  CHECK(misfit(changed_parameters(tiny_model()), sigma)
            .ends_with("\n  The weights predict no variance; set model.learn_sigma = false"));
}

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
  gone.places["train.init_from"] = "a.toml:3:9";
  CHECK_THROWS_WITH(
      world.run(gone),
      "a.toml:3:9: train.init_from = \"/gone.pt\": no such file or folder; allowed: a safetensors "
      "file, a file of torch.save, or the folder of a checkpoint or a run");
  CHECK(world.observer.messages.empty());
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
    write_export(world.files, arguments, weights.tensors);
    CHECK(same(read_all(open_weights(world.files, request(out))), weights.tensors));
  }
  arguments.out = "/gone/o.pt";
  CHECK_THROWS_WITH(write_export(world.files, arguments, weights.tensors),
                    "--out /gone/o.pt: the folder /gone does not exist; create it");
}

}  // namespace dtk
