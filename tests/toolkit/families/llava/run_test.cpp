// LLaVA in a run: weights of batches, frozen and unused parameters, checkpoints without the base, plans and
// names.
#include <ATen/ATen.h>
#include <dtk/policies/memory_ledger.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/safetensors_file.h"
#include "support/llava/dialogues.h"
#include "support/runs/run_world.h"
#include "support/same_bits.h"
#include "toolkit/checkpoint/base.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/data/loader.h"
#include "toolkit/families/llava/batch.h"
#include "toolkit/families/llava/dialogue_source.h"
#include "toolkit/families/llava/names.h"
#include "toolkit/families/llava/planned.h"
#include "toolkit/families/llava/trainable.h"
#include "toolkit/train/save_load.h"
#include "toolkit/train/trainer.h"

namespace dtk::llava {
namespace {

using Overrides = std::vector<std::string>;

struct Run {
  explicit Run(const test::DialogueFolder& folder, const Overrides& overrides = {})
      : loaded(folder.config(overrides)),
        data(open_dialogues(loaded, nullptr, {})),
        trainer(loaded.config, at::kCPU, data.split.training, clock) {}

  std::vector<at::Tensor> gradients() {
    trainer.accumulate_gradients();
    std::vector<at::Tensor> all;
    for (const auto& [name, parameter] : trainer.model().parameters()) {
      if (parameter.grad().defined()) all.push_back(parameter.grad().clone());
    }
    return all;
  }

  test::SteppingClock clock;
  const LoadedConfig loaded;
  const RunData data;
  Trainer trainer;
};

double largest_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double norm = std::max(1e-6, b[i].norm().item<double>());
    largest = std::max(largest, (a[i] - b[i]).norm().item<double>() / norm);
  }
  return largest;
}

using Figures = std::array<int64_t, 4>;

/// Tokens of the longest, pictures, features and labels.
Figures figures_of(const std::vector<SampleSize>& sizes) {
  Figures figures{};
  for (const SampleSize& one : sizes) {
    figures[0] = std::max(figures[0], one.tokens);
    figures[1] += one.pictures;
    figures[2] += one.features;
    figures[3] += one.labels;
  }
  return figures;
}

/// A source of which some samples weigh nothing.
class Weightless final : public DataSource {
 public:
  Weightless(std::shared_ptr<const DataSource> inner, std::function<bool(int64_t)> weighs)
      : inner_(std::move(inner)), weighs_(std::move(weighs)) {}
  int64_t size() const override { return inner_->size(); }
  std::string description() const override { return inner_->description(); }
  bool is_weighted() const override { return true; }
  int64_t weight(int64_t index) const override { return weighs_(index) ? inner_->weight(index) : 0; }
  Batch allocate(int64_t count, bool pinned) const override { return inner_->allocate(count, pinned); }
  Batch allocate_for(const std::vector<int64_t>& samples, bool pinned) const override {
    return inner_->allocate_for(samples, pinned);
  }
  void read(int64_t index, uint64_t epoch, const Batch& batch, int64_t row) const override {
    inner_->read(index, epoch, batch, row);
  }

 private:
  const std::shared_ptr<const DataSource> inner_;
  const std::function<bool(int64_t)> weighs_;
};

Weights weights_named(const std::vector<std::string>& names) {
  Weights weights{"the weights of a file", {}};
  for (const std::string& name : names) weights.tensors.push_back({name, at::kFloat, {1}, {}});
  return weights;
}

}  // namespace

TEST_CASE("micro-batches weigh their labels: their gradients are those of the whole batch") {
  const test::DialogueFolder folder;
  const auto whole = Run(folder, {"data.batch=4"}).gradients();
  CHECK(largest_difference(Run(folder, {"data.batch=4", "train.accumulate=2"}).gradients(), whole) <= 1e-6);
  CHECK(largest_difference(Run(folder, {"data.batch=4", "train.accumulate=4"}).gradients(), whole) <= 1e-6);
  CHECK(largest_difference(Run(folder, {"data.batch=4", "memory.split=3"}).gradients(), whole) <= 1e-6);
  CHECK(largest_difference(Run(folder, {"data.batch=4", "llava.data.pad=max"}).gradients(), whole) <= 1e-5);
  // A mean of means would differ: the samples have other numbers of labels.
  const Run one(folder);
  std::set<int64_t> counts;
  for (int64_t i = 0; i < one.data.all->size(); ++i) counts.insert(one.data.all->weight(i));
  CHECK(counts.size() > 3);
}

TEST_CASE(
    "no tensor of a step has a number for each pair of tokens, but where attention stores its weights") {
  const test::DialogueFolder folder;
  folder.write(
      "long.json",
      nlohmann::json::array({test::dialogue("a", {"0.png"}, {"<image>\nwhat?", std::string(4000, 'x')})}));
  constexpr int64_t kTokens = 1024;
  const auto largest = [&](const std::string& attention) {
    const policies::CountingAllocatorGuard counting;
    Run run(folder, {"llava.data.max_length=" + std::to_string(kTokens), "data.batch=1",
                     "llava.data.conversations=" + folder.path("long.json"),
                     "policies.attention.enabled=" + attention});
    policies::cpu_accounts().start_event_log();
    run.trainer.step();
    // But for what lives within one operator: a kernel works in blocks.
    std::map<uint64_t, int64_t> tensors;
    for (const policies::MemoryEvent& event : policies::cpu_accounts().stop_event_log()) {
      if (event.kind == policies::MemoryEvent::Kind::birth) tensors[event.serial] = event.bytes;
      if (event.kind == policies::MemoryEvent::Kind::scratch) tensors.erase(event.serial);
    }
    int64_t bytes = 0;
    for (const auto& one : tensors) bytes = std::max(bytes, one.second);
    return bytes;
  };
  CHECK(largest("true") < kTokens * kTokens);
  CHECK(largest("false") >= kTokens * kTokens);
}

TEST_CASE("a micro-batch that weighs nothing takes no part in the mean of its step") {
  const test::DialogueFolder folder;
  const auto other = test::dialogue("b", {}, {"is there a coat?", "yes, oben links"});
  folder.write("both.json",
               nlohmann::json::array({test::dialogue("a", {"0.png"}, {"<image>\nwhat?", "a bag"}), other}));
  folder.write("one.json", nlohmann::json::array({other}));
  const auto list = [&](const std::string& name) { return "llava.data.conversations=" + folder.path(name); };
  Run alone(folder, {list("one.json"), "data.batch=1", R"(train.parts=["text"])"});
  const auto wanted = alone.gradients();
  Run both(folder, {list("both.json"), "data.batch=2", "train.accumulate=2", R"(train.parts=["text"])"});
  Trainer trainer(
      both.loaded.config, at::kCPU,
      std::make_shared<Weightless>(both.data.split.training, [](int64_t index) { return index == 1; }),
      both.clock);
  trainer.accumulate_gradients();
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : trainer.model().parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  CHECK(largest_difference(gradients, wanted) <= 1e-6);
}

TEST_CASE("an unused parameter that has a gradient after all ends the run") {
  const test::DialogueFolder folder;
  Run run(folder);
  const std::string unused = run.trainer.model().unused().front();
  for (const auto& [name, parameter] : run.trainer.model().parameters())
    if (name == unused) at::Tensor(parameter).mutable_grad() = at::zeros_like(parameter);
  CHECK(test::error_text<std::logic_error>([&] { run.trainer.step(); }) ==
        "the model says that no loss reaches " + unused + ", which has a gradient");
}

TEST_CASE("a step that weighs nothing is passed over, counted, and changes nothing but the position") {
  const test::DialogueFolder folder;
  Run run(folder);
  Trainer trainer(run.loaded.config, at::kCPU,
                  std::make_shared<Weightless>(run.data.split.training, [](int64_t) { return false; }),
                  run.clock);
  std::vector<at::Tensor> before;
  for (const auto& [name, parameter] : trainer.model().parameters())
    before.push_back(parameter.detach().clone());
  trainer.step();
  trainer.step();
  CHECK(trainer.steps() == 2);
  CHECK(trainer.samples() == 8);
  CHECK(trainer.read_scalars_sync().weightless_steps == 2);
  size_t i = 0;
  for (const auto& [name, parameter] : trainer.model().parameters())
    CHECK(test::same_bits(parameter.detach(), before[i++]));
}

TEST_CASE(
    "the tower behind the tap is unused: no state, no gradient; another parameter without one ends the run") {
  const test::DialogueFolder folder;
  Run run(folder);
  const std::vector<std::string> unused = run.trainer.model().unused();
  CHECK(unused.size() == 18);
  for (const NamedTensor& entry : run.trainer.optimizer().state()) {
    for (const std::string& name : unused) CHECK(entry.name.find(name) == std::string::npos);
  }
  CHECK_NOTHROW(run.trainer.step());
  // Text alone gives the tower zeros. A gradient that is missing is told by name.
  nlohmann::json texts = nlohmann::json::array();
  for (int i = 0; i < 8; ++i) texts.push_back(test::dialogue("a", {}, {"what?", "a bag"}));
  Run text_only(folder, {"llava.data.conversations=" + folder.write("texts.json", texts)});
  CHECK_NOTHROW(text_only.trainer.step());
  Run cut(folder);
  models::Seam& seam = cut.trainer.model().seam();
  seam.run = [run = seam.run](std::string_view path, const models::ModuleFn& fn, models::Tensors&& inputs) {
    models::Tensors outputs = run(path, fn, std::move(inputs));
    if (path == "model.mm_projector") outputs.front() = outputs.front().detach();
    return outputs;
  };
  const std::string message = test::error_text<ConfigError>([&] { cut.trainer.step(); });
  CHECK_THAT(message,
             Catch::StartsWith("step 1: no gradient reached model.vision_tower.vision_tower.vision_model."
                               "embeddings.class_embedding, "));
  CHECK_THAT(
      message,
      Catch::EndsWith("which are trained: the loss does not depend on them; train what it does depend on"));
  Run frozen(folder, {"llava.data.conversations=" + folder.path("texts.json"),
                      R"(train.parts=["projector", "text"])"});
  CHECK_NOTHROW(frozen.trainer.step());
}

TEST_CASE(
    "frozen parameters are no state: neither Adam nor gradients nor saved tensors nor copies in host "
    "memory") {
  const test::DialogueFolder folder;
  const policies::CountingAllocatorGuard counting;
  const std::string base = GENERATE("fp32", "bf16");
  Run run(folder, {R"(train.parts=["projector"])", "llava.base=" + base, "policies.checkpoint.enabled=true",
                   R"(policies.checkpoint.keep="offload")", "policies.checkpoint.offload_min_bytes=1"});
  const policies::MemorySums built = policies::cpu_accounts().live();
  int64_t trained = 0, frozen = 0;
  for (const auto& [name, parameter] : run.trainer.model().parameters())
    (parameter.requires_grad() ? trained : frozen) += static_cast<int64_t>(parameter.nbytes());
  CHECK(built.of(policies::Category::parameters) == trained);
  CHECK(built.of(policies::Category::frozen) == frozen);
  CHECK(built.of(policies::Category::optimizer) >= 2 * trained);
  CHECK(built.of(policies::Category::optimizer) <= 2 * trained + 64);
  CHECK_NOTHROW(run.trainer.step());
  for (const auto& policy : run.trainer.policies().list()) {
    if (policy->name() != "checkpoint") continue;
    // What waited in host memory is activations: less than the decoder's matrices, had they been copied.
    CHECK(policy->report().host_bytes > 0);
  }
}

TEST_CASE("a target without a graph is refused by name where it was asked for, beside others that save") {
  const test::DialogueFolder folder;
  const std::string targets =
      R"(policies.checkpoint.targets=["model.layers.*", "model.vision_tower.vision_tower.vision_model.encoder.layers.*"])";
  Run run(folder, {R"(train.parts=["projector", "text"])", "policies.checkpoint.enabled=true", targets});
  CHECK(test::error_text<policies::PolicyError>([&] { run.trainer.step(); }) ==
        "policies.checkpoint.targets name model.vision_tower.vision_tower.vision_model.encoder.layers.0 and "
        "1 more, "
        "where nothing is trained and no gradient passes: without a graph they keep 0 bytes, so recomputing "
        "them "
        "frees none; leave them out");
  Run trained(folder, {"policies.checkpoint.enabled=true", targets});
  CHECK_NOTHROW(trained.trainer.step());
  Run by_default(folder, {R"(train.parts=["projector", "text"])", targets});
  CHECK_NOTHROW(by_default.trainer.step());
  CHECK_THAT(by_default.trainer.policies().reports()[4].reason,
             Catch::EndsWith(
                 "; of them without a graph, keeping 0 bytes: model.vision_tower.vision_tower.vision_model."
                 "encoder.layers.0 and 1 more"));
}

TEST_CASE("a checkpoint has not the frozen weights of a file, and goes on with that file alone") {
  const test::DialogueFolder folder;
  FileSystem& files = posix_file_system();
  CheckpointStore first_store(files, folder.path("first"), 1);
  std::filesystem::path first;
  {
    Run run(folder);
    run.trainer.step();
    first = save_training(first_store, run.trainer, run.loaded, 1);
  }
  const std::string base = GENERATE("bf16", "nf4", "int8");
  CAPTURE(base);
  const Overrides overrides{R"(train.parts=["projector", "lora"])", "llava.lora.r=4", "llava.base=" + base,
                            "train.init_from=" + first.string()};
  Run run(folder, overrides);
  const Weights weights =
      open_weights(files, {first.string(), "", "train.init_from", "train.init_key", "init_key"});
  load_weights(weights, run.trainer.model());
  run.trainer.set_base(base_of(files, weights));
  run.trainer.step();
  CheckpointStore store(files, folder.path("second"), 1);
  const std::filesystem::path second = save_training(store, run.trainer, run.loaded, 1);
  std::set<std::string> kept;
  for (const NamedTensor& tensor : test::read_safetensors(files, second / "model.safetensors").tensors)
    kept.insert(tensor.name);
  std::set<std::string> trained;
  for (const auto& [name, parameter] : run.trainer.model().parameters()) {
    if (parameter.requires_grad()) trained.insert(name);
  }
  CHECK(kept == trained);

  Run again(folder, overrides);
  load_training(open_checkpoint(files, second), again.trainer);
  for (Run* const one : {&run, &again}) one->trainer.step();
  const auto tensors = [](const Run& one) {
    models::NamedTensors all = one.trainer.model().parameters();
    for (auto& packed : one.trainer.model().packed()) all.push_back(std::move(packed));
    return all;
  };
  const models::NamedTensors ours = tensors(run), theirs = tensors(again);
  for (size_t i = 0; i < ours.size(); ++i) CHECK(at::equal(ours[i].second, theirs[i].second));

  // Whoever draws from it has the base, too.
  const Weights whole = open_weights(files, {second.string(), "", "--checkpoint", "--key", "--key"});
  const auto model = make_model(run.loaded.config, at::kMeta);
  CHECK(std::ssize(complete_weights(*model, whole).tensors) == std::ssize(model->in_files()));

  const std::string model_file = (first / "model.safetensors").string();
  std::string bytes = files.read(model_file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomically(files, model_file, bytes);
  const std::string place = (second / "base.json").string();
  CHECK(test::error_text<ConfigError>([&] {
          load_training(open_checkpoint(files, second), again.trainer);
        }) == place + ": the frozen weights of this run are those of " + first.string() + ", and " +
                  model_file + " has changed since (its SHA-256 differs); put back the file that it was");

  // Moved into the run's folder it is found again.
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomically(files, model_file, bytes);
  const std::filesystem::path moved = second.parent_path().parent_path() / first.filename();
  files.rename(first, moved);
  load_training(open_checkpoint(files, second), again.trainer);
  CHECK(again.trainer.base()->path == moved.string());
  CHECK(again.trainer.base()->files.front().path == (moved / "model.safetensors").string());
  files.remove_all(moved);
  CHECK_THAT(
      test::error_text<ConfigError>([&] { load_training(open_checkpoint(files, second), again.trainer); }),
      Catch::EndsWith(model_file + " is not there; put it back where it was, or into " +
                      second.parent_path().parent_path().string()));
}

TEST_CASE("names of LLaVA's own files and of transformers are known, and no mixture") {
  const std::string tower = "model.vision_tower.vision_tower.vision_model.";
  const auto renamed = [](const std::vector<std::string>& names) {
    std::vector<std::string> own;
    for (const StoredTensor& tensor : with_own_names(weights_named(names)).tensors)
      own.push_back(tensor.name);
    return own;
  };
  const std::vector<std::string> own{tower + "pre_layrnorm.weight", "model.mm_projector.0.bias",
                                     "model.layers.0.mlp.up_proj.weight", "lm_head.weight"};
  CHECK(renamed(own) == own);
  CHECK(renamed({"model.vision_tower.vision_model.pre_layrnorm.weight",
                 "model.multi_modal_projector.linear_1.bias",
                 "model.language_model.layers.0.mlp.up_proj.weight", "lm_head.weight"}) == own);
  CHECK(renamed({"vision_tower.vision_model.pre_layrnorm.weight", "multi_modal_projector.linear_1.bias",
                 "language_model.model.layers.0.mlp.up_proj.weight", "language_model.lm_head.weight",
                 "vision_tower.vision_model.embeddings.position_ids"}) == own);
  CHECK(test::error_text<ConfigError>([&] {
          renamed({"model.norm.weight", "model.language_model.norm.weight"});
        }) ==
        "the weights of a file mix names of two kinds: \"model.norm.weight\" is of LLaVA, "
        "\"model.language_model.norm.weight\" of transformers; name weights of one kind");
  CHECK(test::error_text<ConfigError>([&] {
          renamed({"model.norm.weight", "transformer.h.0"});
        }) ==
        "the weights of a file hold \"transformer.h.0\", which no LLaVA has; allowed: the names of LLaVA's "
        "own files "
        "(model.mm_projector....) or of transformers (model.language_model..., or language_model.model...)");
}

TEST_CASE("what a family derives itself may be missing in weights; nothing else, frozen or not") {
  std::map<std::string, std::vector<std::string>> derived;
  for (const char* const name : {"dit", "diffusion_planner"}) {
    RunConfig config;
    config.train.model = name;
    config.train.steps = 1;
    if (std::string(name) == "dit") config = test::tiny_config();
    derived[name] = make_model(config, at::kMeta)->derived();
  }
  const test::DialogueFolder folder;
  const LoadedConfig loaded = folder.config({R"(train.parts=["projector"])"});
  const auto llava = make_model(loaded.config, at::kMeta);
  derived["llava"] = llava->derived();
  CHECK(derived == std::map<std::string, std::vector<std::string>>{
                       {"dit", {"pos_embed"}}, {"diffusion_planner", {}}, {"llava", {}}});
  Weights weights{"the weights of a file", {}};
  for (const auto& [name, parameter] : llava->parameters())
    weights.tensors.push_back({name, at::kFloat, parameter.sizes().vec(), {}});
  CHECK_NOTHROW(llava->check_fit(weights));
  weights.tensors.erase(weights.tensors.end() - 1);
  CHECK_THAT(test::error_text<ConfigError>([&] { llava->check_fit(weights); }),
             Catch::StartsWith(
                 "the weights of a file are not those of this model\n  missing (1): lm_head.weight [320, "
                 "32]\n  Allowed are the parameters of this model, all of them and no others"));
}

TEST_CASE("a plan knows the largest micro-batch of the whole run, and its step where one has all") {
  const test::DialogueFolder folder;
  LoadedConfig loaded = folder.config({"data.batch=4", "train.accumulate=2"});
  CHECK(planned_note(loaded.config) ==
        "dialogues are not there, so that all are planned with llava.data.max_length = 96 tokens, a picture, "
        "and "
        "labels behind it");
  const Run run(folder);
  std::set<bool> seen;  // whether one micro-batch has all
  for (int64_t seed = 0; seed < 20; ++seed) {
    const int64_t micro = seed % 2 == 0 ? 2 : 12;  // of 12 samples
    const bool grouped = seed % 4 < 2;
    loaded = folder.config({"data.batch=" + std::to_string(2 * micro), "train.accumulate=2",
                            "train.seed=" + std::to_string(seed),
                            std::string("data.order=") + (grouped ? "grouped" : "shuffled")});
    measure_dialogues(loaded.config);
    const Lengths& lengths = *options_of(loaded.config).lengths.of;
    CHECK(lengths.training.size() == 12);
    const LargestBatch largest = largest_batch(loaded.config, lengths);
    REQUIRE(std::ssize(largest.samples) == micro);
    LoaderOptions options;
    options.seed = stream_seed(loaded.config.train.seed, "data");
    options.batch = micro;
    options.grouped = grouped;
    Loader loader(run.data.split.training, options);
    std::vector<Figures> figures;
    Figures most{};
    for (int i = 0; i < 12; ++i) {
      const Batch batch = loader.next();
      figures.push_back(figures_of(dynamic_cast<const Layout&>(*batch.layout).sizes()));
      for (size_t k = 0; k < most.size(); ++k) most[k] = std::max(most[k], figures.back()[k]);
    }
    CHECK(figures_of(largest.samples) == most);
    const auto all = std::find(figures.begin(), figures.end(), most);
    seen.insert(all != figures.end());
    CHECK(largest.step.has_value() == (all != figures.end()));
    if (largest.step) CHECK(*largest.step == (all - figures.begin()) / 2 + 1);
  }
  CHECK(seen.size() == 2);
  loaded.config.train.steps.reset();
  loaded.config.train.seconds = 5;
  measure_dialogues(loaded.config);
  CHECK_THAT(planned_note(loaded.config),
             Catch::StartsWith("the largest micro-batch, or more, as the run's length is "
                               "not known before it: 12 dialogues of up to "));
}

TEST_CASE("grouped dialogues are as long as their like, those without a picture among themselves") {
  const test::DialogueFolder folder;
  int64_t mixed = 0;
  const auto padded = [&](DataOrder order) {
    const Run run(folder, {"data.batch=2"});
    LoaderOptions options;
    options.batch = 2;
    options.grouped = order == DataOrder::grouped;
    Loader loader(run.data.split.training, options);
    int64_t tokens = 0;
    mixed = 0;
    for (int i = 0; i < 6; ++i) {
      const Batch batch = loader.next();
      tokens += batch.tensors.front().numel();
      const std::vector<SampleSize>& sizes = dynamic_cast<const Layout&>(*batch.layout).sizes();
      mixed += (sizes[0].pictures > 0) != (sizes[1].pictures > 0) ? 1 : 0;
    }
    return tokens;
  };
  const int64_t shuffled = padded(DataOrder::shuffled);
  CHECK(mixed > 1);
  CHECK(padded(DataOrder::grouped) < shuffled);
  CHECK(mixed <= 1);
}

TEST_CASE(
    "a run reads its samples in the order of data.order, and goes on with the micro-batch that it had") {
  const test::DialogueFolder folder;
  const auto first_of = [&](const Overrides& overrides) {
    const Run run(folder, overrides);
    return run.trainer.samples_of({.step = 1, .first_sample = 0, .samples = 12});
  };
  std::vector<int64_t> lengths;
  const Run run(folder);
  for (int64_t i = 0; i < 12; ++i) lengths.push_back(run.data.split.training->length(i).value());
  const uint64_t seed = stream_seed(run.loaded.config.train.seed, "data");
  const auto as_read = [](const std::vector<uint32_t>& order) {
    return std::vector<int64_t>(order.begin(), order.end());
  };
  CHECK(first_of({"data.batch=4", "data.order=shuffled"}) == as_read(epoch_order(seed, 0, 12)));
  CHECK(first_of({"data.batch=4", "data.order=grouped"}) == as_read(grouped_order(seed, 0, lengths, 4)));
  CHECK(test::error_text<ConfigError>([&] {
          Run before(folder, {"data.order=grouped", "train.accumulate=2"});
          before.trainer.step();
          Run after(folder, {"data.order=grouped", "train.accumulate=4"});
          after.trainer.restore(before.trainer.state());
        }) ==
        "data.order = \"grouped\": which samples share a batch follows from data.batch / "
        "train.accumulate, which was 2 and is 1 now, within an epoch; set it as it was");
}

TEST_CASE("lengths of dialogues are kept in a file, which stands for them until something else is read") {
  const test::DialogueFolder folder;
  const std::string file = folder.path("lengths.json");
  FileSystem& files = posix_file_system();
  const auto config = [&](const Overrides& more = {}) {
    Overrides all{"llava.data.lengths=" + file};
    all.insert(all.end(), more.begin(), more.end());
    return folder.config(all);
  };
  const auto sizes_with = [&](const Overrides& more, int64_t& measured) {
    measured = 0;
    const LoadedConfig loaded = config(more);
    const auto source = open_list(loaded.config, options_of(loaded.config).data.conversations,
                                  [&](const char*, int64_t, int64_t) { ++measured; });
    return source;
  };
  int64_t looked_at = 0;
  const auto first = sizes_with({}, looked_at);
  REQUIRE(files.exists(file));
  // A figure that no tokenizer gives shows where it comes from.
  std::string text = files.read(file);
  const std::string labels = "\"labels\":[" + std::to_string(first->sizes()[0].labels);
  REQUIRE(text.find(labels) != text.npos);
  const int64_t forged = first->sizes()[0].labels + 1;
  text.replace(text.find(labels), labels.size(), "\"labels\":[" + std::to_string(forged));
  write_file_atomically(files, file, text);
  const auto known = sizes_with({}, looked_at);
  CHECK(looked_at == 0);  // no text was tokenized for them
  CHECK(known->sizes()[0].labels == forged);
  CHECK_THAT(
      test::error_text<DataError>([&] {
        const Batch batch = batch_for(*known, {0}, false);
        known->read(0, 0, batch, 0);
      }),
      Catch::EndsWith("list.json: sample 0 has other lengths than " + file + " says; remove that file"));
  // Other options, another tokenizer, other texts: measured, and kept beside it.
  const auto shorter = sizes_with({"llava.data.max_length=69"}, looked_at);
  CHECK(shorter->sizes()[0].labels != forged);
  CHECK(shorter->lengths().cut > 0);
  CHECK(sizes_with({"llava.data.max_length=69"}, looked_at)->lengths().cut == shorter->lengths().cut);
  CHECK(sizes_with({}, looked_at)->sizes()[0].labels == forged);
  // A plan needs no more than this file.
  LoadedConfig planned = config();
  std::filesystem::rename(folder.path("list.json"), folder.path("away.json"));
  measure_dialogues(planned.config);
  REQUIRE(options_of(planned.config).lengths.of);
  CHECK(options_of(planned.config).lengths.of->training[0].labels == forged);
  std::filesystem::rename(folder.path("away.json"), folder.path("list.json"));
  auto list = folder.some();
  list[0]["conversations"][1]["value"] = "ein Hemd und ein Mantel";
  folder.write("list.json", list);
  CHECK(sizes_with({}, looked_at)->sizes()[0].labels != forged);

  std::string impossible = files.read(file);  // of 12 samples, the newest list first
  const size_t tokens = impossible.find("\"tokens\":[") + std::string("\"tokens\":[").size();
  impossible.replace(tokens, impossible.find(',', tokens) - tokens, "2");
  for (const auto& [damaged, why] : std::vector<std::pair<std::string, std::string>>{
           {"no JSON", "is not JSON"},
           {"[]", "no file of lengths"},
           {R"({"version":2,"lists":[]})", "of another version"},
           {R"({"version":1,"lists":[3]})", "a list in it is no object"},
           {impossible, "a sample in it has lengths that none can have"}}) {
    write_file_atomically(files, file, damaged);
    CHECK_THAT(test::error_text<DataError>([&] { sizes_with({}, looked_at); }),
               Catch::Contains(why) && Catch::EndsWith("llava.data.lengths names a file that a start "
                                                       "writes: remove it, or name another"));
  }
}

}  // namespace dtk::llava
