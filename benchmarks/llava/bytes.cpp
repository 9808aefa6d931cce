// Bytes that a layer of LLaVA's decoder keeps for backward, a token: by the law, planned, and of small models
// counted; and those of a packed layer.
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "support/bench_setup.h"
#include "support/llava/saved_bytes.h"
#include "toolkit/config/config_io.h"
#include "toolkit/core/numbers.h"
#include "toolkit/families/llava/batch.h"
#include "toolkit/families/llava/laws.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/families/llava/planned.h"
#include "toolkit/families/llava/trainable.h"
#include "toolkit/io/file_system.h"
#include "toolkit/plan/per_token.h"

namespace {

using namespace dtk;
using Settings = std::vector<std::string>;

struct Shape {
  const char* name;
  Settings settings;
  bool is_small;  // counted, too
};

struct Regime {
  const char* name;
  Settings settings;
  bool autocasts;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    const auto small = [](int64_t hidden, int64_t mlp, int64_t heads) {
      return Settings{"llava.vision={hidden=16, mlp=32, depth=2, heads=2, image=28, patch=14}",
                      "llava.text={hidden=" + std::to_string(hidden) + ", mlp=" + std::to_string(mlp) +
                          ", depth=3, heads=" + std::to_string(heads) + ", vocabulary=96}",
                      "llava.data.max_length=128"};
    };
    return std::vector<Shape>{{"7B", {"llava.preset=7b"}, false},
                              {"13B", {"llava.preset=13b"}, false},
                              {"h 64, f 176, 4 heads", small(64, 176, 4), true},
                              {"h 96, f 256, 2 heads", small(96, 256, 2), true},
                              {"h 128, f 344, 8 heads", small(128, 344, 8), true}};
  }();
  return all;
}

const std::vector<Regime>& regimes() {
  static const std::vector<Regime> all = [] {
    const std::string projector = R"(train.parts=["projector"])",
                      text = R"(train.parts=["projector", "text"])",
                      lora = R"(train.parts=["projector", "lora"])";
    return std::vector<Regime>{{"trained, fp32 under bf16 autocast", {text}, true},
                               {"trained, fp32", {text}, false},
                               {"frozen bf16", {projector, "llava.base=bf16"}, true},
                               {"frozen fp32", {projector, "llava.base=fp32"}, false},
                               {"frozen fp32 under bf16 autocast", {projector, "llava.base=fp32"}, true},
                               {"frozen nf4", {projector, "llava.base=nf4"}, true},
                               {"frozen int8", {projector, "llava.base=int8"}, true},
                               {"adapters on bf16", {lora, "llava.base=bf16", "llava.lora.r=16"}, true},
                               {"adapters on nf4, dropout",
                                {lora, "llava.base=nf4", "llava.lora.r=16", "llava.lora.dropout=0.05"},
                                true}};
  }();
  return all;
}

LoadedConfig job_of(const Shape& shape, const Regime& regime) {
  Settings settings{"train.model=llava", "train.steps=2", "data.batch=1", "train.threads=1"};
  settings.insert(settings.end(), shape.settings.begin(), shape.settings.end());
  settings.insert(settings.end(), regime.settings.begin(), regime.settings.end());
  settings.push_back(regime.autocasts ? "policies.precision.cpu=bf16" : "policies.precision.enabled=false");
  return parse_config("", shape.name, settings);
}

int64_t saved_by_layer(const RunConfig& config) {
  const policies::SavedTensorEngineGuard engine;
  const llava::TrainableLlava trainable(config, at::kCPU);
  models::Llava model = trainable.model();
  model.seam.run = policies::run_with_module_path();
  const policies::AutocastGuard autocast(
      at::kCPU, config.policies.precision.enabled != policies::Enabled::off, at::kBFloat16);
  Batch batch = trainable.made_up_batch(1, policies::make_generator(at::kCPU, 1));
  const auto saved = std::make_shared<test::SavedBytes>();
  const policies::SavedTensorScope scope(saved);
  const at::Tensor loss = model.loss(llava::llava_batch(std::move(batch)));
  return saved->bytes.at("model.layers.1");
}

// A token's part: what more of them save more.
double counted(const LoadedConfig& loaded) {
  const auto [few, many] = llava::two_lengths(loaded.config);
  return static_cast<double>(saved_by_layer(many.config) - saved_by_layer(few.config)) /
         static_cast<double>(many.tokens - few.tokens);
}

int64_t print_row(const Shape& shape, const Regime& regime) {
  const LoadedConfig loaded = job_of(shape, regime);
  const c10::Device device(shape.is_small ? "cpu" : "cuda:0");
  const PerToken costs = per_token(make_plan(loaded, device), device);
  const TokenNote& law = costs.notes.front();
  const auto layer = std::find_if(costs.modules.begin(), costs.modules.end(), [](const TokenCost& one) {
    return one.first.starts_with("model.layers.");
  });
  if (!law.bytes || layer == costs.modules.end()) throw std::logic_error("no law, or no layer");
  const auto wanted = static_cast<double>(*law.bytes);
  const double found = shape.is_small ? counted(loaded) : wanted;
  std::printf("| %s | %s | %s | %s | %s | %s |\n", shape.name, regime.name,
              with_separators(*law.bytes).c_str(), with_separators(static_cast<int64_t>(layer->kept)).c_str(),
              shape.is_small ? with_separators(std::llround(found)).c_str() : "-",
              with_separators(static_cast<int64_t>(layer->checkpointed)).c_str());
  std::fflush(stdout);
  return layer->kept == wanted && found == wanted ? 0 : 1;
}

void print_packed() {
  std::printf("\n| bytes of | a layer | all layers |\n|---|---:|---:|\n");
  for (const char* const base : {"bf16", "int8", "nf4"}) {
    const LoadedConfig loaded = job_of(
        shapes().front(), {"", {R"(train.parts=["projector"])", std::string("llava.base=") + base}, true});
    const llava::TrainableLlava model(loaded.config, at::kMeta);
    int64_t layer = 0, all = 0;
    const auto add = [&](const std::string& name, const at::Tensor& tensor) {
      if (!name.starts_with("model.layers.") || name.ends_with("norm.weight")) return;
      all += static_cast<int64_t>(tensor.nbytes());
      if (name.starts_with("model.layers.0.")) layer += static_cast<int64_t>(tensor.nbytes());
    };
    for (const auto& [name, parameter] : model.parameters()) add(name, parameter);
    for (const auto& [name, tensor] : model.packed()) add(name, tensor);
    std::printf("| 7B's matrices in %s | %s | %s |\n", base, with_separators(layer).c_str(),
                with_separators(all).c_str());
  }
}

// Peak of a step with checkpointing, of tensors.
int64_t print_step(const std::string& file, int64_t samples, int64_t length, int64_t bound) {
  LoadedConfig loaded = load_config(posix_file_system(), DTK_CONFIGS "/" + file, {});
  loaded.config.train.threads = 1;
  loaded.config.data.batch = samples * loaded.config.train.accumulate;
  llava::options_of(loaded.config).data.max_length = length;
  const policies::PhasePeak peak = make_plan(loaded, c10::Device("cuda:0")).memory.peak();
  std::printf("| %s | %lld x %s | %s | %s | %s |\n", file.c_str(), static_cast<long long>(samples),
              with_separators(length).c_str(), with_separators(peak.peak.bytes).c_str(), peak.name.c_str(),
              with_separators(bound).c_str());
  std::fflush(stdout);
  return peak.peak.bytes < bound ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options(
      "llava-bytes",
      "What a layer of LLaVA's decoder keeps for backward, a token: law, plan and count; exit "
      "code 1 if they differ by a byte");
  options.add_options()("small", "only the models that are counted, too");
  return bench::main_of("llava-bytes", options, argc, argv, [](const cxxopts::ParseResult& parsed) {
    std::printf(
        "| decoder | regime | law | planned | counted | checkpointed |\n|---|---|---:|---:|---:|---:|\n");
    int64_t differ = 0;
    for (const Shape& shape : shapes()) {
      if (parsed.count("small") > 0 && !shape.is_small) continue;
      for (const Regime& regime : regimes()) differ += print_row(shape, regime);
    }
    print_packed();
    if (parsed.count("small") == 0) {
      std::printf(
          "\n| a step of | dialogues x tokens | planned peak, bytes | in phase | bound "
          "|\n|---|---|---:|---|---:|\n");
      differ += print_step("llava_7b_qlora.toml", 1, 2048, 9'000'000'000);
      differ += print_step("llava_7b_qlora.toml", 16, 776, 16'000'000'000);
    }
    if (differ > 0)
      throw std::runtime_error(std::to_string(differ) + " rows differ, or are above their bound");
  });
}
