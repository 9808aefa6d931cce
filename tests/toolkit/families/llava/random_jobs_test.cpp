// Random jobs of a LLaVA: every trained tensor gets a gradient, with the same bits whatever is recomputed or
// waits in host memory.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>
#include <map>
#include <set>

#include "support/catch.h"
#include "support/llava/dialogues.h"
#include "support/plans/plan_cases.h"
#include "support/runs/tiny_run.h"
#include "support/same_bits.h"
#include "toolkit/families/llava/dialogue_source.h"
#include "toolkit/families/llava/options.h"
#include "toolkit/train/trainer.h"

namespace dtk::llava {
namespace {

struct Gradients : std::map<std::string, at::Tensor> {
  bool of_text = false;  // no sample had a picture
};
using Settings = std::vector<std::string>;

Gradients gradients_of(const LoadedConfig& loaded, const RunData& data) {
  test::SteppingClock clock;
  Trainer trainer(loaded.config, at::kCPU, data.split.training, clock);
  const at::Generator drawn = policies::make_generator(at::kCPU, 5);
  for (const auto& [name, parameter] : trainer.model().parameters()) {
    const at::NoGradGuard no_grad;  // adapters that begin without effect would pass no gradient on
    if (name.ends_with("lora_B.weight")) at::Tensor(parameter).normal_(0, 0.1, drawn);
  }
  trainer.accumulate_gradients();
  const std::vector<int64_t> read = trainer.samples_of({1, 0, loaded.config.data.batch});
  const bool has_picture = std::any_of(read.begin(), read.end(), [&](int64_t sample) {
    return data.split.training->length(sample).value() > 0;
  });
  Gradients gradients;
  gradients.of_text = !has_picture;
  const std::vector<std::string> unused = trainer.model().unused();
  for (const auto& [name, parameter] : trainer.model().parameters()) {
    const bool is_unused = std::find(unused.begin(), unused.end(), name) != unused.end();
    const bool is_due = parameter.requires_grad() && !is_unused;
    CAPTURE(name);
    CHECK(parameter.grad().defined() == is_due);
    if (!is_due) continue;
    gradients[name] = parameter.grad().clone();
    // What a key's bias adds is the same to all scores of a query, which the softmax takes out.
    const bool is_seen =
        has_picture || !(name.starts_with("model.vision_tower") || name.starts_with("model.mm_"));
    if (is_seen && !name.ends_with("k_proj.bias")) CHECK(parameter.grad().abs().max().item<float>() > 0);
  }
  return gradients;
}

// What changes no bit, as it would be without: recomputing, offloading, the ledger, averages.
Settings plain(const Settings& settings) {
  Settings without;
  for (const std::string& one : settings) {
    if (!one.starts_with("policies.checkpoint.") && !one.starts_with("policies.ema.")) without.push_back(one);
  }
  without.insert(without.end(), {"policies.checkpoint.enabled=false", "memory.ledger=false"});
  return without;
}

}  // namespace

TEST_CASE("random jobs: each trained tensor has a gradient, bit-equal to that without the policies") {
  const policies::SavedTensorEngineGuard engine;
  const test::DialogueFolder folder;
  constexpr uint64_t kJobs = 200;
  constexpr int64_t kWords = 320;  // of the folder's tokenizer
  int64_t compared = 0;
  uint64_t of_text = 0;
  std::set<std::string> seen;
  for (uint64_t index = 0; index < kJobs; ++index) {
    Settings settings = bench::llava_case(30, index, kWords);
    for (const std::string& one : settings) seen.insert(one);
    std::erase_if(settings, [](const std::string& one) { return one.starts_with("llava.data.max_length="); });
    settings.insert(settings.end(),
                    {"llava.data.max_length=200", "llava.data.conversations=" + folder.path("list.json"),
                     "llava.data.tokenizer=" + folder.path("tokenizer.model")});
    std::string written;
    for (const std::string& one : settings) written += " " + one;
    INFO(written);
    const LoadedConfig loaded = parse_config("", "case", settings);
    RunData data;
    data.all = data.split.training =
        std::make_shared<DialogueSource>(loaded.config, folder.path("list.json"), OpeningProgress{});
    const Gradients with = gradients_of(loaded, data),
                    without = gradients_of(parse_config("", "plain", plain(settings)), data);
    REQUIRE(with.size() == without.size());
    of_text += with.of_text ? 1 : 0;
    for (const auto& [name, gradient] : with) {
      CAPTURE(name);
      CHECK(test::same_bits(gradient, without.at(name)));
      ++compared;
    }
  }
  CHECK(compared > 3000);
  CHECK(of_text > 0);
  CHECK(of_text < kJobs);
  for (const char* const one :
       {R"(train.parts=["lora"])", R"(train.parts=["lora", "head"])", R"(train.parts=["lora", "norm"])",
        R"(train.parts=["head"])", R"(train.parts=["norm"])",
        R"(train.parts=["vision", "projector", "text"])", "llava.base=nf4", "llava.base=int8",
        "llava.lora.dropout=0.5", "train.accumulate=3", "policies.checkpoint.keep=offload",
        "policies.checkpoint.keep=block"})
    CHECK(seen.count(one) == 1);
}

}  // namespace dtk::llava
