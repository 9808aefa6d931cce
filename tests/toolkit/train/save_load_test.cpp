// What a checkpoint says of the run's state is checked before any of it is taken.
#include "toolkit/train/save_load.h"

#include <ATen/ops/full.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "support/files/safetensors_file.h"
#include "support/runs/tiny_run.h"
#include "support/same_bits.h"
#include "toolkit/checkpoint/manifest.h"
#include "toolkit/checkpoint/weights.h"
#include "toolkit/io/sha256.h"

namespace dtk {
namespace {

using Json = nlohmann::json;

/// The checkpoint of a run's second step, whose files a test may change; the manifest then has their hashes.
class SavedRun {
 public:
  SavedRun() : trainer_(test::tiny_config(), at::kCPU, test::tiny_data(), clock_) {
    trainer_.step();
    trainer_.step();
    CheckpointStore store(files_, "run/checkpoints", 1);
    folder_ = save_training(store, trainer_, {test::tiny_config(), {}}, 1);
  }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string folder() const { return folder_.string(); }
  Json state() { return Json::parse(files_.read(folder_ / "state.json")); }

  std::string refusal(const std::string& name, const std::string& content) {
    const std::string before = files_.read(folder_ / name);
    replace(name, content);
    const std::string text = test::error_text<FileError>([&] {
      const Checkpoint checkpoint = open_checkpoint(files_, folder_);
      threads_of(checkpoint);
      load_training(checkpoint, trainer_);
    });
    replace(name, before);
    return text;
  }

  /// state.json with one member replaced.
  std::string with(const char* key, const Json& value) {
    Json changed = state();
    changed[key] = value;
    return refusal("state.json", changed.dump());
  }

  std::string with_tensor(const std::string& name,
                          const std::function<at::Tensor(const at::Tensor&)>& change) {
    std::vector<NamedTensor> tensors = test::read_safetensors(files_, folder_ / name).tensors;
    at::Tensor& first = tensors.front().tensor;
    first = change(first);
    first_ = tensors.front().name;
    test::MemoryFileSystem other;
    write_safetensors(*other.create("x"), tensors);
    return refusal(name, other.read("x"));
  }
  const std::string& changed_tensor() const { return first_; }

 private:
  void replace(const std::string& name, const std::string& content) {
    files_.create(folder_ / name)->write(content.data(), content.size());
    const std::filesystem::path path = folder_ / manifest_name;
    CheckpointManifest manifest = parse_manifest(files_.read(path), path.string());
    for (ManifestFile& file : manifest.files) {
      if (file.name != name) continue;
      Sha256 hash;
      hash.update(content.data(), content.size());
      file = {name, content.size(), hash.hex_digest()};
    }
    const std::string text = manifest_text(manifest);
    files_.create(path)->write(text.data(), text.size());
  }

  test::MemoryFileSystem files_;
  test::SteppingClock clock_;
  Trainer trainer_;
  std::filesystem::path folder_;
  std::string first_;
};

}  // namespace

TEST_CASE("save and load: the state that a run wrote is taken") {
  SavedRun run;
  CHECK(run.refusal("state.json", run.state().dump()) == "(nothing was thrown)");
}

TEST_CASE("save and load: a checkpoint whose tensors take several files is taken, and its weights read") {
  test::MemoryFileSystem files;
  test::SteppingClock clock;
  Trainer first(test::tiny_config(), at::kCPU, test::tiny_data(), clock);
  first.step();
  constexpr uint64_t file_bytes = 4000;
  CheckpointStore whole_store(files, "whole", 1), cut_store(files, "cut", 1, nullptr, file_bytes);
  const LoadedConfig loaded{test::tiny_config(), {}};
  const std::filesystem::path whole = save_training(whole_store, first, loaded, 1);
  const std::filesystem::path cut = save_training(cut_store, first, loaded, 1);
  for (const char* name : {"model", "optimizer", "ema"}) {
    CHECK_FALSE(files.exists(cut / (name + std::string(".safetensors"))));
    CHECK(files.exists(cut / (name + std::string(".safetensors.index.json"))));
  }

  Trainer second(test::tiny_config(), at::kCPU, test::tiny_data(), clock);
  load_training(open_checkpoint(files, cut), second);
  CHECK(second.steps() == 1);
  CheckpointStore again(files, "again", 1);
  const std::filesystem::path same = save_training(again, second, loaded, 1);
  for (const std::string name : {"model.safetensors", "optimizer.safetensors", "ema.safetensors"})
    CHECK(files.read(same / name) == files.read(whole / name));

  for (const std::string key : {"", "model"}) {
    const auto weights_of = [&](const std::filesystem::path& folder) {
      const Weights weights = open_weights(files, {folder.string(), key, "--weights", "--key", "--key"});
      std::map<std::string, at::Tensor> values;
      for (const StoredTensor& one : weights.tensors) values[one.name] = one.read();
      return values;
    };
    const auto expected = weights_of(whole), read = weights_of(cut);
    REQUIRE(read.size() == expected.size());
    for (const auto& [name, values] : expected) CHECK(test::same_bits(read.at(name), values));
  }
}

TEST_CASE("save and load: a state that no run writes is refused") {
  SavedRun run;
  const std::string place = run.file("state.json") + ": ", other = "; resume another checkpoint";
  for (const Json& wrong : {Json(-1), Json(1e300), Json(2e15), Json(39.9), Json("2"), Json(nullptr)}) {
    INFO(wrong);
    CHECK(run.with("step", wrong) ==
          place + "\"step\" is not a whole number from 0 to 1000000000000000" + other);
    CHECK(run.with("samples", wrong) ==
          place + "\"samples\" is not a whole number from 0 to 1000000000000000" + other);
  }
  CHECK(run.with("samples", 9) == place + "\"samples\" is 9, where no batch of this data set begins" + other);
  // Without a loader since then, the trainer still takes another checkpoint.
  CHECK(run.refusal("state.json", run.state().dump()) == "(nothing was thrown)");
  CHECK(run.with("step", 3) == place + "step 3, and the manifest beside it says 2" + other);
  CHECK(run.with("version", 99) == place + "version 99; this program reads version 2" + other);
  CHECK(run.with("version", 1) ==
        place +
            "version 1, of an earlier program; this one resumes version 2; a new run takes the weights by "
            "train.init_from = \"" +
            run.folder() + "\"");
  for (const Json& wrong : {Json(-0.5), Json(1e300), Json("1")})
    CHECK(run.with("seconds", wrong) == place + "\"seconds\" is not a number from 0" + other);
  CHECK(run.with("threads", 0) == place + "\"threads\" is 0; allowed: 1 to 1024" + other);
  CHECK(run.with("threads", 1e9) == place + "\"threads\" is 1000000000; allowed: 1 to 1024" + other);
  CHECK(run.with("policies", 1) == place + "\"policies\" is not an object" + other);
  CHECK(run.with("policies", {{"ema", {{"updates", -1}}}}) ==
        place + "\"updates\" is not a whole number from 0 to 1000000000000000" + other);
  CHECK(run.with("policies", {{"ema", 1}}) == place + "\"ema\" is not an object" + other);
  CHECK(run.with("extra", 1) == place + "the key \"extra\", which no run writes" + other);
  CHECK(run.with("policies", Json::object()) ==
        place + "policies.ema: the state has no count of updates" + other);
  const std::string twice = run.state().dump();
  CHECK(run.refusal("state.json", "{\"step\": 2, " + twice.substr(1)) ==
        run.file("state.json") + " has the key \"step\" twice" + other);
  CHECK(run.refusal("state.json", "[]") == place + "it is not a JSON object" + other);
  CHECK(run.refusal("state.json", "{") == run.file("state.json") + " is not JSON (at byte 2)" + other);
}

TEST_CASE("save and load: weights, moments and averages that are not finite are refused") {
  SavedRun run;
  for (const std::string name : {"model.safetensors", "optimizer.safetensors", "ema.safetensors"}) {
    for (const double value : {std::nan(""), HUGE_VAL}) {
      const std::string text =
          run.with_tensor(name, [&](const at::Tensor& tensor) { return at::full(tensor.sizes(), value); });
      CHECK(text ==
            run.file(name) + ": tensor \"" + run.changed_tensor() +
                "\" holds a value that is not finite (NaN or infinite); resume an earlier checkpoint");
    }
  }
}

TEST_CASE("save and load: weights of another type are refused") {
  SavedRun run;
  const std::string text =
      run.with_tensor("model.safetensors", [](const at::Tensor& tensor) { return tensor.to(at::kInt); });
  CHECK(text == run.file("model.safetensors") + " does not fit this model\n  of another type: " +
                    run.changed_tensor() + " (int32, not float32)");
}

}  // namespace dtk
