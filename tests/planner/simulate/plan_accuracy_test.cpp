// A plan under CPU rules is exact: random jobs are planned and run, and every storage is compared.
#include "support/plans/plan_accuracy.h"

#include <ATen/ATen.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/llava/small_llava.h"
#include "support/plans/plan_cases.h"
#include "toolkit/config/config_io.h"
#include "toolkit/io/file_system.h"
#include "toolkit/plan/planned_run.h"

namespace {

using namespace dtk;

void check_exact(const std::vector<std::string>& settings, int64_t frames = 0) {
  LoadedConfig loaded = parse_config("", "case", settings);
  if (frames > 0) loaded.inferred = frames;
  const PlanAccuracy accuracy = plan_accuracy(loaded);
  std::string written;
  for (const std::string& setting : settings) written += " " + setting;
  INFO(written);
  INFO(described(accuracy.differences));
  CHECK(accuracy.differences.empty());
  CHECK(accuracy.storages > 100);
}

// Of 16 tokens and two blocks; `more` adds settings or replaces those of the same key.
std::vector<std::string> small_job(std::initializer_list<const char*> more) {
  std::vector<std::string> settings = {"data.kind=synthetic",    "data.samples=100",   "data.batch=4",
                                       "model.depth=2",          "model.hidden=32",    "model.heads=2",
                                       "model.patch=2",          "model.image_size=8", "model.channels=3",
                                       "model.classes=5",        "train.steps=20",     "train.threads=1",
                                       "train.out=runs/planned", "sample.steps=3",     "sample.guidance=2.0",
                                       "sample.classes=0-1",     "sample.per_class=2"};
  for (const char* text : more) {
    const std::string setting = text;
    const std::string key = setting.substr(0, setting.find('=') + 1);
    std::erase_if(settings, [&](const std::string& other) { return other.starts_with(key); });
    settings.push_back(setting);
  }
  return settings;
}

// YYYYMMDD, so that every day tries other jobs and a failure can be repeated.
uint64_t seed_of_today() {
  const auto today = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const std::chrono::year_month_day date(today);
  return static_cast<uint64_t>(static_cast<int>(date.year())) * 10000 +
         static_cast<unsigned>(date.month()) * 100 + static_cast<unsigned>(date.day());
}

bool equal(const std::vector<policies::PhasePeak>& a, const std::vector<policies::PhasePeak>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].peak.bytes != b[i].peak.bytes) return false;
    if (a[i].peak.items() != b[i].peak.items()) return false;
  }
  return true;
}

void check_folding(const LoadedConfig& loaded, const std::vector<std::string>& folded) {
  const planner::SimulationResult short_plan = plan_run(loaded, c10::kCPU, {.fold = true}).memory;
  const planner::SimulationResult whole = plan_run(loaded, c10::kCPU, {.fold = false}).memory;
  CHECK(whole.folded.empty());
  for (const std::string& loop : folded) {
    INFO(loop);
    CHECK(short_plan.folded.count(loop) == 1);
  }
  CHECK(equal(short_plan.device, whole.device));
  CHECK(equal(short_plan.host, whole.host));
  CHECK(short_plan.steps.front() == whole.steps.front());
  CHECK(short_plan.steps.at(short_plan.steady_number()) == whole.steps.at(whole.steady_number()));
  CHECK(short_plan.recomputed == whole.recomputed);
  CHECK(described(differences(planned_storages(loaded, true), planned_storages(loaded, false), false)) == "");
}

}  // namespace

TEST_CASE("plans of random jobs are exact to the byte") {
  constexpr uint64_t kCases = 20;
  const std::string family = GENERATE("dit", "llava", "vggt");
  const uint64_t seed = seed_of_today();
  WARN("seed " << seed);
  for (uint64_t index = 0; index < kCases; ++index) {
    INFO("benchmarks/plans/plan_accuracy --family " << family << " --seed " << seed << " --case " << index);
    int64_t frames = 0;
    const std::vector<std::string> settings = family == "dit"    ? bench::plan_case(seed, index)
                                              : family == "vggt" ? bench::vggt_case(seed, index, frames)
                                                                 : bench::llava_case(seed, index);
    check_exact(settings, frames);
  }
}

TEST_CASE("temporaries of CPU kernels that are whole tensors are planned") {
  SECTION("arguments in a common type: bf16 beside fp32") {
    check_exact(small_job({"policies.precision.enabled=true", "policies.precision.fp32=[\"final_layer\"]"}));
  }
  SECTION("bf16 products of stored attention weights") {
    check_exact(small_job({"policies.precision.enabled=true", "policies.attention.enabled=false"}));
  }
  SECTION("a convolution without oneDNN: one sample") {
    check_exact(small_job({"data.batch=1", "sample.per_class=1", "sample.guidance=1.0"}));
  }
  SECTION("a convolution of one point, channels last") {
    check_exact(small_job({"model.patch=1", "model.image_size=2", "sample.cfg_channels=2"}));
  }
  SECTION("matrices of one column") {
    check_exact(small_job({"model.patch=1", "model.image_size=4", "model.channels=1"}));
  }
  SECTION("random states of segments that draw, and none of those that do not") {
    check_exact(small_job({"model.mlp_dropout=0.1"}));
    check_exact(small_job({"model.mlp_dropout=0.0", "policies.checkpoint.targets=[\"blocks.*\"]"}));
  }
  SECTION("offloaded blocks: host memory too") {
    const auto offload = [](const char* precision, const char* more) {
      check_exact(small_job(
          {"policies.checkpoint.keep=offload", "policies.checkpoint.offload_min_bytes=0", precision, more}));
    };
    offload("policies.precision.cpu=fp32", "model.mlp_dropout=0.1");
    offload("policies.precision.enabled=true", "train.accumulate=2");
    offload("policies.precision.cpu=fp32", "policies.checkpoint.segment=2");
  }
  SECTION("every loss and sampler") {
    for (const char* sampler : {"ddpm", "ddim"}) {
      const std::string drawn = std::string("sample.sampler=") + sampler;
      for (const char* objective : {"epsilon", "v", "x0"}) {
        const std::string learnt = std::string("diffusion.objective=") + objective;
        check_exact(small_job({learnt.c_str(), drawn.c_str(), "diffusion.steps=100"}));
      }
    }
    check_exact(small_job({"sample.sampler=heun"}));
  }
  SECTION("several threads") {
    check_exact(small_job({"train.threads=2", "model.image_size=32"}));
  }
}

TEST_CASE("a case is a function of its seed and number") {
  CHECK(bench::plan_case(3, 4) == bench::plan_case(3, 4));
  CHECK(bench::plan_case(3, 4) != bench::plan_case(3, 5));
  CHECK(bench::plan_case(3, 4) != bench::plan_case(4, 4));
}

TEST_CASE("cases have every choice of what segments keep") {
  std::map<std::string, int> drawn;
  for (uint64_t index = 0; index < 400; ++index) {
    for (const std::string& setting : bench::plan_case(1, index)) ++drawn[setting];
  }
  for (const char* choice :
       {"keep=block", "keep=all", "keep=offload", "keep=[\"attn_out\"]", "keep=[\"fc2_out\"]",
        "keep=[\"proj_out\",\"fc2_out\"]", "keep=[\"aten::addmm\"]",
        "keep=[\"aten::gelu\",\"aten::native_layer_norm\"]", "keep=[\"attn_out\",\"aten::gelu\"]",
        "keep=elementwise", "keep=gates", "every=2", "every=3", "segment=2", "segment=3",
        "offload_min_bytes=0", "offload_min_bytes=512", "offload_min_bytes=1048576"}) {
    INFO(choice);
    CHECK(drawn[std::string("policies.checkpoint.") + choice] > 0);
  }
}

TEST_CASE("a folded plan equals the one of all passes") {
  LoadedConfig base = load_config(posix_file_system(), DTK_SOURCE_DIR "/configs/base.toml", {});
  base.config.train.threads = 1;
  check_folding(base, {"sampler steps", "steady steps"});
  check_folding(parse_config("", "job",
                             small_job({"diffusion.objective=epsilon", "diffusion.steps=100",
                                        "sample.sampler=ddpm", "sample.steps=20", "data.validation=17",
                                        "train.validate_every=10", "sample.per_class=5"})),
                {"sampler steps", "validation", "steady steps"});
  // The last of six may be a short one.
  for (const char* const drop_last : {"data.drop_last=true", "data.drop_last=false"}) {
    check_folding(parse_config("", "job",
                               small_job({"train.accumulate=6", "data.batch=24", "data.samples=44", drop_last,
                                          "policies.checkpoint.enabled=true"})),
                  {"micro-batches"});
  }
  check_folding(test::small_llava({"train.accumulate=4", "data.batch=8"}), {"micro-batches"});
}

TEST_CASE("a policy's period is planned once if it returns to the books it began with") {
  const LoadedConfig third =
      parse_config("", "job",
                   small_job({"policies.ema.every=3", "data.validation=8", "train.validate_every=10",
                              "train.checkpoint_every=5", "train.sample_every=5", "train.accumulate=2"}));
  check_folding(third, {"steady steps"});
  CHECK(plan_run(third, c10::kCPU).memory.folded.at("steady steps") == 3);
  const LoadedConfig shorter_last = parse_config("", "job", small_job({"data.drop_last=false"}));
  CHECK(plan_run(shorter_last, c10::kCPU).memory.folded.count("steady steps") == 0);
}

TEST_CASE("a long period is planned by four of its steps, and is exact") {
  const auto rare = [](std::initializer_list<const char*> more) {
    std::vector<std::string> settings =
        small_job({"policies.ema.every=150", "data.validation=8", "train.validate_every=60",
                   "train.checkpoint_every=70", "train.sample_every=100"});
    settings.insert(settings.end(), more.begin(), more.end());
    std::erase(settings, "train.steps=20");
    return settings;
  };
  // Ends with the first average, soon after it, and after three.
  for (const char* steps : {"train.steps=150", "train.steps=160", "train.steps=500"}) {
    const std::vector<std::string> job = rare({steps});
    check_exact(job);
    const planner::SimulationResult plan = plan_run(parse_config("", "job", job), c10::kCPU).memory;
    CHECK(plan.steps.size() == 5);
    CHECK(plan.folded.at("steady steps") == 2 * 150 - 4);
  }
  check_exact(rare({"train.steps=500", "data.drop_last=false"}));
  check_exact(rare({"train.steps=160", "policies.ema.device=same", "train.validate_ema=true"}));
}

TEST_CASE("plans of runs that skip steps are exact") {
  check_exact(small_job({"train.on_not_finite=\"skip\"", "train.accumulate=2"}));
  check_exact(small_job({"train.on_not_finite=\"skip\"", "policies.ema.device=\"same\"",
                         "data.drop_last=false", "optimizer.clip=0", "train.log_every=7"}));
}

TEST_CASE("books are equal if every owner holds the same") {
  const policies::CountingAllocatorGuard counting;
  const auto held_by = [](const char* label) {
    const policies::OwnerScope owner(policies::Category::data, label);
    return at::empty({10});
  };
  at::Tensor tensor = held_by("first");
  const planner::LedgerSnapshot before;
  CHECK(before.equal(planner::LedgerSnapshot()));
  policies::claim(tensor, policies::Category::data, "second");
  CHECK_FALSE(before.equal(planner::LedgerSnapshot()));
  tensor = at::Tensor();
  CHECK_FALSE(before.equal(planner::LedgerSnapshot()));
  tensor = held_by("first");
  CHECK(before.equal(planner::LedgerSnapshot()));
}

namespace {

// Loss and gradients of two layers, the second with or without a statement of its own between them.
void two_layers(bool with_gelu) {
  const policies::PhaseScope phase("forward");
  at::Tensor first, second;
  {
    const policies::OwnerScope owner(policies::Category::parameters, "layers");
    first = at::zeros({24, 16}).set_requires_grad(true);
    second = at::zeros({8, 24}).set_requires_grad(true);
  }
  at::Tensor h = at::linear(at::zeros({10, 16}), first);
  if (with_gelu) h = at::gelu(h, "tanh");
  h = at::linear(h, second);
  h = at::mse_loss(h, at::zeros_like(h));
  const policies::PhaseScope backward("backward");
  torch::autograd::backward({h}, {});
}

std::vector<policies::LoggedPhase> logged(const std::function<void()>& job) {
  const policies::CountingAllocatorGuard counting;
  policies::cpu_accounts().reset_phases("build");
  return policies::event_log_of(policies::cpu_accounts(), job);
}

std::vector<policies::LoggedPhase> planned(bool with_gelu) {
  return logged(
      [&] { planner::simulate(c10::kCPU, [&](const planner::EndOfPlan&) { two_layers(with_gelu); }); });
}

}  // namespace

TEST_CASE("a statement less in a model changes plan and run alike, and not unnoticed") {
  const auto plan_with = planned(true), plan_without = planned(false);
  const auto run_with = logged([] { two_layers(true); }), run_without = logged([] { two_layers(false); });
  CHECK(described(differences(plan_with, run_with, true)) == "");
  CHECK(described(differences(plan_without, run_without, true)) == "");
  constexpr int64_t kActivation = 10 * 24 * 4;
  const auto found = differences(plan_without, run_with, true);
  CHECK(described(found).find(
            "forward, born: temporaries aten::gelu, 0 storages for 1: predicted 0, measured " +
            std::to_string(kActivation)) != std::string::npos);
  REQUIRE(!found.empty());
  CHECK(found.front().what == "peak");
  CHECK(found.front().measured > found.front().predicted);
}

namespace {

// Of each type, into a new tensor, one that is given and the argument itself. What an owner is given is no
// temporary, so no part of it is scratch.
void compare_with_numbers(bool owned) {
  const policies::PhaseScope phase("compare");
  std::optional<policies::OwnerScope> owner;
  if (owned) owner.emplace(policies::Category::data, "masks");
  for (const at::ScalarType type : {at::kLong, at::kInt, at::kFloat, at::kDouble, at::kBFloat16, at::kBool}) {
    const at::Tensor values = at::zeros({5}, type);
    for (const at::Scalar& number : {at::Scalar(1), at::Scalar(0.5)}) {
      at::Tensor mask = at::eq(values, number);
      at::lt_out(mask, values, number);
    }
    values.ge_(1);
  }
}

}  // namespace

TEST_CASE("comparisons with a number are planned to the byte, also where an owner is given what is made") {
  for (const bool owned : {true, false}) {
    const auto plan = logged([&] {
      planner::simulate(c10::kCPU, [&](const planner::EndOfPlan&) { compare_with_numbers(owned); });
    });
    const auto run = logged([&] { compare_with_numbers(owned); });
    CAPTURE(owned);
    CHECK(described(differences(plan, run, /*births=*/true)) == "");
    REQUIRE(plan.size() == run.size());
    CHECK(plan.back().with_scratch == run.back().with_scratch);
    CHECK(plan.back().scratch == run.back().scratch);
  }
}
