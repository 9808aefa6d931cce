// Weights that a file holds as bitsandbytes packs them, and runs that begin with adapters of peft.
#include "toolkit/families/llava/packed_files.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/llava/dialogues.h"
#include "support/same_bits.h"
#include "toolkit/checkpoint/adapters.h"
#include "toolkit/checkpoint/base.h"
#include "toolkit/families/llava/adapter_files.h"
#include "toolkit/families/llava/names.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/families/llava/trainable.h"
#include "toolkit/io/safetensors.h"

namespace dtk::llava {
namespace {

using models::PackedWeight;
using models::Packing;
using Json = nlohmann::ordered_json;
using test::same_bits;

at::Tensor bytes_of(const std::string& text) {
  return at::from_blob(const_cast<char*>(text.data()), {std::ssize(text)}, at::kByte).clone();
}

// Of the JSON that as_in_file() writes.
Json state_of(const PackedWeight& weight) {
  for (const NamedTensor& one : as_in_file("x.weight", weight)) {
    if (!one.name.ends_with("nf4")) continue;
    const auto* const begin = one.tensor.const_data_ptr<uint8_t>();
    return Json::parse(begin, begin + one.tensor.numel());
  }
  return {};
}

struct Files {
  explicit Files(const std::vector<std::string>& overrides = {})
      : loaded(folder.config(overrides)), model(loaded.config, at::kCPU) {}

  /// All of the model, with the decoder's matrices packed.
  std::vector<NamedTensor> tensors(Packing packing, bool double_quant) const {
    std::vector<NamedTensor> all;
    for (const auto& [name, parameter] : model.parameters()) {
      const bool packs = name.starts_with("model.layers.") && parameter.dim() == 2;
      if (!packs) {
        all.push_back({name, parameter.detach()});
        continue;
      }
      for (NamedTensor& one : as_in_file(name, models::packed(parameter.detach(), packing, double_quant)))
        all.push_back(std::move(one));
    }
    return all;
  }
  Weights opened(const std::vector<NamedTensor>& tensors) const {
    const std::string path = folder.path("packed.safetensors");
    write_file_atomically(posix_file_system(), path,
                          [&](WritableFile& file) { write_safetensors(file, tensors, {}); });
    return open_weights(posix_file_system(), {path, "", "train.init_from", "", ""});
  }

  const test::DialogueFolder folder;
  const LoadedConfig loaded;
  const TrainableLlava model;
};

}  // namespace

TEST_CASE(
    "weights that a file holds packed are taken as they are, or unpacked where they are not wanted so") {
  const Files files;
  const std::string base = GENERATE("nf4", "int8");
  const bool nested = base == "nf4" && GENERATE(false, true);
  CAPTURE(base, nested);
  const Packing packing = base == "nf4" ? Packing::nf4 : Packing::int8;
  const Weights weights = files.opened(files.tensors(packing, nested));
  const std::string frozen = R"(train.parts=["projector"])",
                    double_quant = std::string("llava.double_quant=") + (nested ? "true" : "false");
  std::vector<std::string> overrides{frozen, "llava.base=" + base};
  if (base == "nf4") overrides.push_back(double_quant);
  const TrainableLlava as_packed(files.folder.config(overrides).config, at::kCPU);
  load_weights(weights, as_packed);
  const TrainableLlava as_fp32(files.folder.config({frozen, "llava.base=fp32"}).config, at::kCPU);
  load_weights(weights, as_fp32);
  int64_t compared = 0;
  std::map<std::string, at::Tensor> packed, unpacked;
  for (const auto& [name, tensor] : as_packed.packed()) packed[name] = tensor;
  for (const auto& [name, tensor] : as_fp32.parameters()) unpacked[name] = tensor.detach();
  for (const auto& [name, parameter] : files.model.parameters()) {
    if (!name.starts_with("model.layers.") || parameter.dim() != 2) continue;
    const PackedWeight wanted = models::packed(parameter.detach(), packing, nested);
    for (const auto& [end, tensor] : wanted.tensors()) CHECK(same_bits(packed.at(name + end), tensor));
    CHECK(same_bits(unpacked.at(name), models::unpacked(wanted, at::kFloat)));
    ++compared;
  }
  CHECK(compared == 2 * 7);
  if (!nested) return;
  // Packed otherwise than asked for: unpacked and packed anew.
  const TrainableLlava plain(
      files.folder.config({frozen, "llava.base=nf4", "llava.double_quant=false"}).config, at::kCPU);
  load_weights(weights, plain);
  for (const auto& [name, tensor] : plain.packed()) {
    if (!name.ends_with(".weight.absmax")) continue;
    const std::string weight = name.substr(0, name.size() - std::string(".absmax").size());
    CHECK(same_bits(tensor, models::packed(unpacked.at(weight), Packing::nf4, false).absmax));
  }
}

TEST_CASE("files that transformers wrote of what bitsandbytes packed are read with their bits") {
  const std::string kind = GENERATE("nf4", "int8");
  CAPTURE(kind);
  const std::string folder = DTK_SOURCE_DIR "/tests/fixtures/";
  FileSystem& system = posix_file_system();
  const auto config = [&](const std::string& base) {
    return parse_config(R"(train.model = "llava"
train.steps = 1
train.parts = ["projector"]
llava.vision = {hidden = 16, mlp = 32, depth = 2, heads = 2, image = 28, patch = 14}
llava.text = {hidden = 32, mlp = 56, depth = 1, heads = 2, vocabulary = 40}
llava.base = ")" + base + "\"\n",
                        "packed.toml", {})
        .config;
  };
  const Weights weights =
      open_weights(system, {folder + "llava_" + kind + ".safetensors", "", "train.init_from", "", ""});
  Weights theirs{"unpacked", {}};
  for (StoredTensor& one : open_safetensors(system, folder + "llava_unpacked.safetensors")) {
    if (!one.name.starts_with(kind + ".")) continue;
    one.name = one.name.substr(kind.size() + 1) + ".weight";
    theirs.tensors.push_back(std::move(one));
  }
  theirs = with_own_names(std::move(theirs));
  REQUIRE(theirs.tensors.size() == 21);
  const TrainableLlava as_fp32(config("fp32"), at::kCPU), as_packed(config(kind), at::kCPU);
  load_weights(weights, as_fp32);
  load_weights(weights, as_packed);
  std::map<std::string, at::Tensor> ours, packed;
  for (const auto& [name, parameter] : as_fp32.parameters()) ours[name] = parameter.detach();
  for (const auto& [name, tensor] : as_packed.packed()) packed[name] = tensor;
  for (const StoredTensor& one : theirs.tensors) {
    CAPTURE(one.name);
    CHECK(same_bits(ours.at(one.name), one.read()));
  }
  int64_t compared = 0;
  for (const StoredTensor& one : with_own_names(weights).tensors) {  // not joined: as they lie in the file
    std::string name = one.name;
    if (name.ends_with(".SCB")) name.insert(name.size() - 4, ".weight");
    const auto found = packed.find(name);
    if (found == packed.end()) continue;
    CHECK(same_bits(found->second, one.read()));
    ++compared;
  }
  CHECK(compared == (kind == "nf4" ? 3 * 7 : 2 * 7));
  // And written with the bits that they were read with.
  std::map<std::string, at::Tensor> written;
  const RunConfig plain = config("fp32");
  for (const NamedTensor& one : family_of(plain).to_export(weights, plain, {.pack = kind}))
    written[one.name] = one.tensor;
  int64_t in_both = 0;
  for (const StoredTensor& one : with_own_names(weights).tensors) {
    if (!one.name.starts_with("model.layers.")) continue;
    CAPTURE(one.name);
    CHECK(same_bits(written.at(one.name), one.read()));
    ++in_both;
  }
  CHECK(in_both == 2 + (kind == "nf4" ? 6 * 7 : 3 * 7));
  CHECK(in_both == std::count_if(written.begin(), written.end(),
                                 [](const auto& one) { return one.first.starts_with("model.layers."); }));
}

TEST_CASE("what is exported has its adapters joined in, or its matrices packed, or both") {
  const test::DialogueFolder folder;
  const RunConfig config =
      folder.config({R"(train.parts=["projector", "lora"])", "llava.lora.r=4", "llava.lora.alpha=6"}).config;
  const TrainableLlava model(config, at::kCPU);
  Weights own{"a run", {}};
  std::map<std::string, at::Tensor> values;
  for (const auto& [name, parameter] : model.parameters()) {
    const at::NoGradGuard no_grad;
    if (name.find("lora_B") != name.npos) at::Tensor(parameter).normal_();
    const at::Tensor value = values[name] = parameter.detach();
    own.tensors.push_back({name, at::kFloat, value.sizes().vec(), [value] { return value.clone(); }});
  }
  const bool merge = GENERATE(false, true);
  const std::string pack = GENERATE("", "nf4", "int8");
  CAPTURE(merge, pack);
  std::map<std::string, at::Tensor> wanted;
  for (const auto& [name, value] : values) {
    const bool is_adapter = name.find("lora_") != name.npos;
    if (is_adapter && merge) continue;
    const std::string module = name.substr(0, name.rfind('.'));
    at::Tensor weight = value;
    if (merge && values.count(module + ".lora_A.weight") > 0)
      weight = value.add(
          at::matmul(values.at(module + ".lora_B.weight"), values.at(module + ".lora_A.weight")), 1.5);
    const bool packs = !pack.empty() && !is_adapter && name.starts_with("model.layers.") && value.dim() == 2;
    if (!packs) {
      wanted[name] = weight;
      continue;
    }
    const Packing packing = pack == "nf4" ? Packing::nf4 : Packing::int8;
    for (const NamedTensor& one : as_in_file(name, models::packed(weight, packing, /*double_quant=*/true)))
      wanted[one.name] = one.tensor;
  }
  const std::vector<NamedTensor> written =
      family_of(config).to_export(own, config, {.merge = merge, .pack = pack});
  CHECK(written.size() == wanted.size());
  for (const NamedTensor& one : written) {
    CAPTURE(one.name);
    CHECK(same_bits(one.tensor, wanted.at(one.name)));
  }
  const std::string lost = family_of(config).lost_by_export(config, {.merge = merge, .pack = pack});
  CHECK(lost.empty() == pack.empty());  // nothing was packed in training
  CHECK(test::error_text<ConfigError>([&] { family_of(config).to_export(own, config, {.pack = "fp4"}); }) ==
        "--pack fp4: allowed: nf4 | int8");
  const RunConfig without = folder.config({}).config;
  CHECK_THAT(test::error_text<ConfigError>([&] {
               Weights plain{"a base", {}};
               for (const StoredTensor& one : own.tensors)
                 if (one.name.find("lora_") == one.name.npos) plain.tensors.push_back(one);
               family_of(without).to_export(plain, without, {.merge = true});
             }),
             Catch::StartsWith("--merge: ") && Catch::EndsWith(" have no adapters; leave it out"));
}

TEST_CASE("packed weights of another kind, with other values or of no size are refused by name") {
  const Files files;
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const auto refused = [&](const std::string& end, const at::Tensor& instead) {
    std::vector<NamedTensor> tensors;
    for (NamedTensor& one : files.tensors(Packing::nf4, true)) {
      if (one.name != name + end)
        tensors.push_back(std::move(one));
      else if (instead.defined())
        tensors.push_back({one.name, instead});
    }
    const Weights weights = files.opened(tensors);
    const std::string text = test::error_text<DataError>([&] { load_weights(weights, files.model); });
    const std::string begin = "train.init_from: tensor \"" + name + "\" ";
    return text.starts_with(begin) ? text.substr(begin.size(), text.find(';') - begin.size()) : text;
  };
  const auto state = [&](const char* key, const Json& value) {
    Json json = state_of(models::packed(at::ones({96, 32}), Packing::nf4, true));
    json[key] = value;
    return bytes_of(json.dump());
  };
  const std::string end = ".quant_state.bitsandbytes__nf4";
  CHECK(refused(end, state("blocksize", 128)) == "has another blocksize than 64");
  CHECK(refused(end, state("nested_blocksize", 64)) == "has another nested_blocksize than 256");
  CHECK(refused(end, state("shape", {96})) == "has a state without the shape of a matrix");
  CHECK(refused(end, state("shape", {96, 64})) == "has codes of another type, or not 3072 of them");
  CHECK(refused(end, state("nested_offset", "x")) == "has an offset that is no number");
  CHECK_THAT(refused(end, bytes_of("{")),
             Catch::StartsWith("has a state that cannot be read: its state is not JSON"));
  CHECK(refused(end, {}) == "has \".absmax\" beside it and no state of nf4");
  CHECK(refused(".absmax", {}) == "has no \".absmax\" beside it");
  CHECK(refused(".absmax", at::zeros({48}, at::kFloat)) == "has .absmax of another type, or not 48 of them");
  CHECK(refused(".quant_map", at::zeros({16})) == "has other values in \".quant_map\" than those of nf4");
}

TEST_CASE("adapters in peft's files begin a run on the base that they name, and on no other") {
  const std::vector<std::string> lora{R"(train.parts=["projector", "lora"])", "llava.lora.r=4",
                                      "llava.lora.alpha=8"};
  const test::DialogueFolder folder;
  FileSystem& system = posix_file_system();
  const auto config = [&](std::vector<std::string> more = {}) {
    more.insert(more.begin(), lora.begin(), lora.end());
    return folder.config(more).config;
  };
  const TrainableLlava trained(config(), at::kCPU);
  std::vector<NamedTensor> base;
  Weights own{"a run", {}};
  for (const auto& [name, parameter] : trained.parameters()) {
    const at::NoGradGuard no_grad;
    if (name.find("lora_B") != name.npos) at::Tensor(parameter).normal_();
    const at::Tensor values = parameter.detach();
    if (name.find("lora_") == name.npos) base.push_back({name, values});
    own.tensors.push_back({name, at::kFloat, values.sizes().vec(), [values] { return values; }});
  }
  const auto write = [&](const std::string& path, const std::vector<NamedTensor>& tensors) {
    write_file_atomically(system, path, [&](WritableFile& file) { write_safetensors(file, tensors, {}); });
  };
  write(folder.path("base.safetensors"), base);
  const AdapterFiles files = adapter_files(own, config());
  const std::filesystem::path adapters = folder.path("adapters");
  system.create_directories(adapters);
  write((adapters / kAdapterTensors).string(), files.tensors);
  const auto describe = [&](const char* key, const Json& value) {
    Json json = Json::parse(files.config);
    json["base_model_name_or_path"] = folder.path("base.safetensors");
    json[key] = value;
    write_file_atomically(system, adapters / kAdapterConfig, json.dump());
  };
  const auto load = [&](const std::vector<std::string>& more = {}) {
    auto model = std::make_unique<TrainableLlava>(config(more), at::kCPU);
    load_weights(
        open_weights(system, {adapters.string(), "", "train.init_from", "train.init_key", "init_key"}),
        *model);
    return model;
  };
  const auto holds_all = [&](const TrainableLlava& model) {
    const models::NamedTensors& now = model.parameters();
    return std::equal(now.begin(), now.end(), trained.parameters().begin(), [](const auto& a, const auto& b) {
      return a.first == b.first && same_bits(a.second.detach(), b.second.detach());
    });
  };
  describe("r", 4);
  CHECK(holds_all(*load()));
  // A folder of transformers.
  system.create_directories(folder.path("published"));
  std::filesystem::copy_file(folder.path("base.safetensors"),
                             folder.path("published") + "/model.safetensors");
  describe("base_model_name_or_path", folder.path("published"));
  CHECK(holds_all(*load()));

  const auto refused = [&](const char* key, const Json& value, const std::vector<std::string>& more = {}) {
    describe(key, value);
    return test::error_text<ConfigError>([&] { load(more); });
  };
  CHECK_THAT(
      refused("base_model_name_or_path", "somebody/llava"),
      Catch::StartsWith("train.init_from: adapter_config.json calls the weights that these adapters lie "
                        "beside \"somebody/llava\", which is no file of weights here"));
  CHECK_THAT(refused("lora_alpha", 16), Catch::EndsWith("have r = 4 and alpha = 16, and llava.lora.r = 4, "
                                                        "llava.lora.alpha = 8; set [llava.lora] so"));
  CHECK_THAT(
      refused("use_rslora", true),
      Catch::EndsWith("are described with \"use_rslora\", which no [llava.lora] computes; name others"));
  // As dit-export names it, with its SHA-256.
  describe("base_model_name_or_path", nullptr);
  const Weights beside =
      open_weights(system, {folder.path("base.safetensors"), "", "train.init_from", "", ""});
  write_file_atomically(system, adapters / kBaseFile, base_text(base_of(system, beside)));
  CHECK(holds_all(*load()));
  base.front().tensor = base.front().tensor + 1;
  write(folder.path("base.safetensors"), base);
  CHECK_THAT(test::error_text<ConfigError>([&] { load(); }),
             Catch::EndsWith("has changed since (its SHA-256 differs); put back the file that it was"));
}

}  // namespace dtk::llava
