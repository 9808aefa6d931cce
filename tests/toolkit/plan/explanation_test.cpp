// What dit-plan --explain says of a DiT: its largest parameter, what backward holds again, what is alive at
// the peak, and the other choices for policies.checkpoint.
#include <dtk/models/dit_options.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/one_line.h"
#include "support/runs/tiny_run.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/plan/alternatives.h"
#include "toolkit/plan/explanation_json.h"
#include "toolkit/plan/per_token.h"
#include "toolkit/plan/plan.h"
#include "toolkit/plan/plan_text.h"

using namespace dtk;
using Json = nlohmann::json;
using policies::CheckpointOptions;
using policies::Enabled;

namespace {

using dtk::test::kCpu;
using dtk::test::kCuda;

LoadedConfig tiny(CheckpointOptions checkpoint = {}) {
  LoadedConfig loaded;
  loaded.config = test::tiny_config();
  loaded.config.data.batch = 40;  // of which no activation is as large as a weight
  loaded.config.policies.precision.cpu = policies::CpuPrecision::fp32;
  if (checkpoint.targets.empty()) checkpoint.targets = {"blocks.*"};
  loaded.config.policies.checkpoint = std::move(checkpoint);
  loaded.config.log.report = loaded.config.log.tensorboard = false;
  return loaded;
}

planner::Explanation explained(const Plan& plan, c10::Device device) {
  return explain_segments(plan, {}, device);
}

std::map<std::string, CheckpointChoice> by_name(const CheckpointChoices& found) {
  std::map<std::string, CheckpointChoice> map;
  for (const CheckpointChoice& one : found.choices) map[one.key + " = " + one.value] = one;
  return map;
}

CheckpointChoices choices_for(const Plan& plan, c10::Device device) {
  return checkpoint_choices(plan, plan.loaded.config.policies.checkpoint, device);
}

}  // namespace

TEST_CASE("the largest parameter of a DiT has its own name, and what is built before is no temporary") {
  for (const c10::Device device : {kCuda, kCpu}) {
    LoadedConfig loaded = tiny();
    const int64_t hidden = *(dit::options_of(loaded.config).model.hidden = 64);
    const planner::LargestParameter largest = explained(make_plan(loaded, device), device).plain.largest;
    CHECK(largest.name == "blocks.0.adaLN_modulation.1.weight");
    CHECK(largest.bytes == 4 * 6 * hidden * hidden);
    // The second micro-batch's gradient, before it is added to the first one's.
    CHECK(largest.temporaries == 1);
    CHECK(largest.phase == "first_step");
    CHECK(largest.operators == std::vector<std::string>{device.is_cuda() ? "aten::_to_copy" : "aten::mm"});
  }
}

TEST_CASE("what modules keep a token is together what a job keeps more when it has more tokens") {
  for (const c10::Device device : {kCuda, kCpu}) {
    const LoadedConfig loaded = tiny();
    const Plan plan = make_plan(loaded, device);
    const PerToken costs = per_token(plan, device);
    const auto jobs = family_of(loaded.config).two_sizes(loaded.config);
    CHECK(costs.tokens == std::array<int64_t, 2>{jobs[0].tokens, jobs[1].tokens});
    CHECK(costs.tokens[1] == 4 * costs.tokens[0]);  // of pictures twice as wide
    std::array<planner::Explanation, 2> why;
    for (size_t i = 0; i < jobs.size(); ++i) {
      LoadedConfig sized = loaded;
      sized.config = jobs[i].config;
      why[i] = explained(make_plan(sized, device), device);
    }
    const auto more = static_cast<double>(costs.tokens[1] - costs.tokens[0]);
    double kept = costs.others.kept, again = costs.others.checkpointed, flops = 0;
    bool has_blocks = false;
    for (const TokenCost& one : costs.modules) {
      kept += one.kept * static_cast<double>(one.count);
      again += one.checkpointed * static_cast<double>(one.count);
      flops += one.recomputed_flops * static_cast<double>(one.count);
      has_blocks = has_blocks || (one.first == "blocks.0" && one.count == 2);
    }
    CHECK(has_blocks);
    CHECK(kept == Approx(static_cast<double>(why[1].plain.saved - why[0].plain.saved) / more));
    CHECK(again == Approx(static_cast<double>(why[1].recomputed->saved - why[0].recomputed->saved) / more));
    CHECK(flops == Approx(static_cast<double>(why[1].recomputed->plan.steady_step().recomputed -
                                              why[0].recomputed->plan.steady_step().recomputed) /
                          more / static_cast<double>(loaded.config.train.accumulate)));
    CHECK(again < kept);
    const std::string text = test::one_line(per_token_text(costs));
    CHECK_THAT(text, Catch::Contains("blocks.0 ... 1, each "));
  }
}

TEST_CASE("what an offloading job holds again was fetched, not made") {
  CheckpointOptions offload;
  offload.keep = policies::KeepWord::offload;
  offload.offload_min_bytes = {1};
  for (const c10::Device device : {kCuda, kCpu}) {
    LoadedConfig loaded = tiny(offload);
    loaded.config.policies.precision.enabled = Enabled::off;
    const planner::Explanation why = explained(make_plan(loaded, device), device);
    REQUIRE(why.recomputed);
    CHECK(why.recomputed->recomputed_held.bytes == 0);
    CHECK(why.recomputed->fetched.path == "blocks.0");
    // All that the block saves but the condition (20, 16), which the block after it has brought already.
    const auto& segments = why.plain.segments;
    const auto block = std::find_if(segments.begin(), segments.end(),
                                    [](const auto& one) { return one.path == "blocks.0"; });
    REQUIRE(block != segments.end());
    CHECK(why.recomputed->fetched.bytes == block->saves - 4 * 20 * 16);
    const std::string text = planner::text_of(why), line = test::one_line(text);
    const std::string bytes = device.is_cuda() ? "125,456" : "117,760";
    CHECK_THAT(line, Catch::Contains(bytes + " fewer fetched backward holds at most " + bytes +
                                     " bytes that it fetched from host memory, in blocks.0 peak "));
    CHECK_THAT(text, !Catch::Contains("recompute ") && !Catch::Contains("recomputed"));
    CHECK_THAT(line, !Catch::Contains("host memory or"));  // it waits there already
    const Json json = explanation_json(why).at("recomputed");
    CHECK(json.at("fetched") == why.recomputed->fetched.bytes);
    CHECK(json.at("fetched_in") == "blocks.0");
    CHECK(json.at("made_again") == 0);
  }
}

TEST_CASE("the peak is said with what is alive there, not only with what came last") {
  const Plan plan = make_plan(tiny(), kCuda);
  const planner::Explanation why = explained(plan, kCuda);
  const policies::PhasePeak peak = policies::highest(why.recomputed->plan.device);
  const planner::LargestAlive largest = planner::largest_alive(peak.peak);
  REQUIRE(largest.bytes > 0);
  int64_t most = 0;  // of what lives within a step
  for (const auto category : {policies::Category::temporaries, policies::Category::scratch}) {
    const auto items = peak.peak.items();
    const auto found = items.find(category);
    if (found == items.end()) continue;
    for (const auto& [operation, bytes] : found->second) most = std::max(most, bytes);
  }
  for (const auto& [operation, bytes] : peak.peak.by_operator(policies::Category::saved))
    most = std::max(most, bytes);
  CHECK(largest.bytes == most);
  const Json json = explanation_json(why).at("recomputed").at("peak").at("largest");
  CHECK(json.at("operation") == largest.operation);
  CHECK(json.at("category") == policies::name_of(largest.category));
  CHECK(json.at("bytes") == largest.bytes);
  CHECK_THAT(test::one_line(planner::text_of(why)),
             Catch::Contains("; alive there, the most of one operator: " + largest.operation + ", "));
}

TEST_CASE("other choices for policies.checkpoint are what plans with them say, the lowest peak first") {
  for (const c10::Device device : {kCuda, kCpu}) {
    const Plan plan = make_plan(tiny(), device);
    const CheckpointChoices found = choices_for(plan, device);
    CHECK(found.planned == 7);
    CHECK(found.seconds > 0);
    const auto named = by_name(found);
    for (const char* result : models::dit_kept_results) {
      CheckpointOptions keeping;
      keeping.keep = std::vector<std::string>{result};
      const Plan other = make_plan(tiny(keeping), device);
      const CheckpointChoice& one = named.at("keep = [\"" + std::string(result) + "\"]");
      CHECK(one.peak.peak.bytes == other.memory.peak().peak.bytes);
      CHECK(one.peak.name == other.memory.peak().name);
      CHECK(one.host.peak.bytes == other.memory.host.peak.bytes);
      CHECK(one.recomputed == other.step.recomputed);
      CHECK(one.recomputed < plan.step.recomputed);
    }
    CHECK(named.at("keep = \"all\"").recomputed == 0);
    CHECK(named.at("keep = \"offload\"").recomputed == 0);
    for (size_t i = 1; i < found.choices.size(); ++i)
      CHECK(found.choices[i - 1].peak.peak.bytes <= found.choices[i].peak.peak.bytes);
    for (const CheckpointChoice& one : found.choices) {
      CHECK((one.peak.peak.bytes < plan.memory.peak().peak.bytes || one.recomputed < plan.step.recomputed));
    }
  }
}

TEST_CASE("offloading is told with the host memory that it takes") {
  CheckpointOptions block;
  block.offload_min_bytes = {1};
  LoadedConfig deep = tiny(block);  // more blocks than the two that are on the device at once
  dit::options_of(deep.config).model.depth = 8;
  deep.config.data.batch = 64;
  const Plan plan = make_plan(deep, kCuda);
  const auto named = by_name(choices_for(plan, kCuda));
  const CheckpointChoice offload = named.at("keep = \"offload\""), inputs = named.at("keep = [\"offload\"]");
  CHECK(offload.host.peak.bytes > inputs.host.peak.bytes);
  CHECK(inputs.host.peak.bytes > plan.memory.host.peak.bytes);
  CHECK(inputs.peak.peak.bytes < plan.memory.peak().peak.bytes);
  CHECK(inputs.recomputed == plan.step.recomputed);
}

TEST_CASE("no choice is told that is so already, does nothing, or is refused") {
  CheckpointOptions offload, all, asked;
  offload.keep = policies::KeepWord::offload;
  all.keep = policies::KeepWord::all;
  asked.enabled = Enabled::on;
  CHECK(by_name(choices_for(make_plan(tiny(offload), kCuda), kCuda)).count("keep = \"offload\"") == 0);
  CHECK(by_name(choices_for(make_plan(tiny(all), kCuda), kCuda)).count("keep = \"all\"") == 0);
  const auto named = by_name(choices_for(make_plan(tiny(asked), kCuda), kCuda));
  CHECK(named.count("keep = \"block\"") == 0);
  CHECK(named.count("keep = \"all\"") == 0);  // refused with enabled = true
  CHECK(named.at("enabled = false").recomputed == 0);
  CHECK(named.count("segment = 1") == 0);
  // One target only: no segment of two.
  CheckpointOptions one;
  one.targets = {"blocks.0"};
  CHECK(by_name(choices_for(make_plan(tiny(one), kCuda), kCuda)).count("segment = 2") == 0);
}

TEST_CASE("of keep = auto the choices are with the targets as written") {
  CheckpointOptions placed, written;
  placed.targets = {"blocks.0"};
  written.keep = policies::KeepWord::automatic;
  const Plan plan = make_plan(tiny(placed), kCuda);
  const auto named = by_name(checkpoint_choices(plan, written, kCuda));
  CheckpointOptions offload;
  offload.keep = policies::KeepWord::offload;
  CHECK(named.at("keep = \"offload\"").peak.peak.bytes ==
        make_plan(tiny(offload), kCuda).memory.peak().peak.bytes);
  CHECK(named.count("segment = 2") == 0);
}

TEST_CASE("the choices as text and as JSON") {
  const Plan plan = make_plan(tiny(), kCuda);
  CheckpointChoices found = choices_for(plan, kCuda);
  found.seconds = 0.125;
  const std::string text = checkpoint_choices_text(plan, found);
  CHECK_THAT(text, Catch::StartsWith("other choices for policies.checkpoint (7 planned, in 0.12 s)\n"));
  CHECK_THAT(text, Catch::Contains("\nas configured ") && Catch::Contains("\nkeep = [\"fc2_out\"] "));
  const Json json = checkpoint_choices_json(found);
  REQUIRE(json.at("choices").size() == found.choices.size());
  const Json& first = json.at("choices")[0];
  CHECK(json.at("planned") == 7);
  CHECK(first.at("set") == "policies.checkpoint." + found.choices[0].key + "=" + found.choices[0].value);
  CHECK(first.at("peak_bytes") == found.choices[0].peak.peak.bytes);
  CHECK(first.at("phase") == found.choices[0].peak.name);
  CHECK(first.at("host_bytes") == found.choices[0].host.peak.bytes);
  CHECK(first.at("recomputed_flops") == found.choices[0].recomputed);
  found.choices.clear();
  CHECK_THAT(checkpoint_choices_text(plan, found),
             Catch::EndsWith(" s)\nnone lowers the peak or recomputes less\n"));
  CheckpointOptions off;
  off.enabled = Enabled::off;
  const Plan without = make_plan(tiny(off), kCuda);
  CHECK_THAT(checkpoint_choices_text(without, choices_for(without, kCuda)),
             Catch::StartsWith("choices for policies.checkpoint, were it on ("));
}
