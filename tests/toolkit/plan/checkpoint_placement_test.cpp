// policies.checkpoint.keep = "auto": that the choice is the best of all, that its plan is what a run takes,
// and what dit-plan says of it.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "support/plans/plan_accuracy.h"
#include "support/runs/tiny_run.h"
#include "toolkit/commands/plan.h"
#include "toolkit/config/rules.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/numbers.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/plan/placement_search.h"
#include "toolkit/plan/plan.h"
#include "toolkit/plan/planned_run.h"
#include "toolkit/report/placement.h"
#include "toolkit/report/plan_summary.h"

using namespace dtk;
using Json = nlohmann::json;
using policies::Enabled;
using Paths = std::vector<std::string>;

namespace {

using dtk::test::kCpu;
using dtk::test::kCuda;

/// Blocks over 64 tokens, whose activations are most of the job.
LoadedConfig blocks(int64_t depth = 4) {
  LoadedConfig loaded;
  loaded.config = test::tiny_config();
  loaded.config.train.accumulate = 1;
  loaded.config.data.batch = 16;
  dit::options_of(loaded.config).model.depth = depth;
  dit::options_of(loaded.config).model.hidden = 32;
  dit::options_of(loaded.config).model.patch = 1;
  loaded.config.policies.precision.cpu = policies::CpuPrecision::fp32;
  loaded.config.log.report = loaded.config.log.tensorboard = false;
  return loaded;
}

LoadedConfig automatic(int64_t budget, LoadedConfig loaded = blocks()) {
  loaded.config.policies.checkpoint.keep = policies::KeepWord::automatic;
  loaded.config.memory.budget = ByteSize{budget};
  return loaded;
}

/// What a device's sums take for themselves is up to a thousandth of this job, and the search, which judges
/// by what modules keep, does not foresee it.
planner::SimulationOptions without_sums() {
  planner::SimulationOptions options;
  options.terms.reduction_scratch = false;
  return options;
}

struct Choice {
  Paths recomputed;
  ResultsByModule keeps;
  int64_t bytes = 0, flops = 0;
};

LoadedConfig configured(LoadedConfig loaded, const Paths& recomputed, const ResultsByModule& keeps) {
  recompute(loaded.config.policies.checkpoint, recomputed, keeps);
  if (recomputed.empty()) loaded.config.policies.checkpoint.enabled = Enabled::off;
  return loaded;
}

Choice planned(const LoadedConfig& loaded, c10::Device device, const Paths& recomputed,
               const ResultsByModule& keeps = {}) {
  const Plan plan = make_plan(configured(loaded, recomputed, keeps), device, without_sums());
  return {recomputed, keeps, plan.bytes_in(Capacity::allocator), plan.step.recomputed};
}

/// What one of the modules of all_choices() keeps: all, its inputs, or some results too.
struct Level {
  bool all = false;
  Paths names = {};
};

std::vector<Level> levels_of(bool with_results) {
  if (!with_results) return {{true}, {false}};
  return {{true},
          {false},
          {false, {"attn_out"}},
          {false, {"proj_out"}},
          {false, {"fc2_out"}},
          {false, {"attn_out", "proj_out"}},
          {false, {"attn_out", "fc2_out"}},
          {false, {"proj_out", "fc2_out"}},
          {false, {"attn_out", "proj_out", "fc2_out"}},
          {false, {"aten::addmm"}},
          {false, {"attn_out", "aten::addmm"}}};
}

/// Every level of every module; those of `blocks` offer results.
std::vector<Choice> all_choices(const LoadedConfig& job, c10::Device device, const Paths& targets,
                                const std::set<std::string>& blocks) {
  std::vector<std::vector<Level>> levels;
  for (const std::string& path : targets) levels.push_back(levels_of(blocks.count(path) > 0));
  std::vector<Choice> all;
  std::vector<size_t> at(targets.size(), 0);
  for (;;) {
    Paths recomputed;
    ResultsByModule keeps;
    for (size_t i = 0; i < targets.size(); ++i) {
      const Level& level = levels[i][at[i]];
      if (level.all) continue;
      recomputed.push_back(targets[i]);
      if (!level.names.empty()) keeps[targets[i]] = level.names;
    }
    try {
      all.push_back(planned(job, device, recomputed, keeps));
    } catch (const ConfigError&) {
      // None of them offers one of the results.
    }
    size_t i = 0;
    while (i < at.size() && ++at[i] == levels[i].size()) at[i++] = 0;
    if (i == at.size()) return all;
  }
}

const std::vector<Choice>& choices_of_blocks(c10::Device device) {
  static std::map<std::string, std::vector<Choice>> known;
  std::vector<Choice>& choices = known[device.str()];
  const Paths targets = {"blocks.0", "blocks.1"};
  if (choices.empty()) choices = all_choices(blocks(2), device, targets, {targets.begin(), targets.end()});
  return choices;
}

int64_t fewest_flops(const std::vector<Choice>& choices, int64_t budget) {
  int64_t fewest = INT64_MAX;
  for (const Choice& one : choices) {
    if (one.bytes <= budget) fewest = std::min(fewest, one.flops);
  }
  return fewest;
}

int64_t lowest_peak(const std::vector<Choice>& choices) {
  int64_t lowest = INT64_MAX;
  for (const Choice& one : choices) lowest = std::min(lowest, one.bytes);
  return lowest;
}

/// Some of the peaks, with the lowest and the highest.
std::vector<int64_t> some_budgets(const std::vector<Choice>& choices, size_t count) {
  std::set<int64_t> all;
  for (const Choice& one : choices) all.insert(one.bytes);
  const std::vector<int64_t> sorted(all.begin(), all.end());
  REQUIRE(sorted.size() > count);
  std::vector<int64_t> some;
  for (size_t i = 0; i < count; ++i) some.push_back(sorted[i * (sorted.size() - 1) / (count - 1)]);
  return some;
}

constexpr char blocks_toml[] = R"(policies.precision.cpu = "fp32"
policies.checkpoint.keep = "auto"
[train]
steps = 20
threads = 1
[data]
kind = "synthetic"
samples = 64
batch = 16
[model]
depth = 4
hidden = 32
heads = 2
patch = 1
image_size = 8
channels = 1
classes = 4
learn_sigma = false
[sample]
steps = 2
guidance = 2.0
per_class = 1
)";

struct Printed {
  std::string text, error;
};

Printed plan_within(int64_t budget, PlanArguments arguments = {}) {
  test::MemoryFileSystem files;
  files.create("a.toml")->write(blocks_toml, sizeof blocks_toml - 1);
  arguments.config = "a.toml";
  arguments.device = PlannedDevice::cpu;
  arguments.set = {"memory.budget=" + std::to_string(budget)};
  Printed result;
  try {
    run_plan(arguments, files, [&](const std::string& part) { result.text += part; });
  } catch (const Error& error) {
    CHECK(error.code == ExitCode::memory);
    result.error = error.what();
  }
  return result;
}

/// Peak of the job of blocks_toml with all blocks recomputed (word "block") or none ("all").
int64_t peak_of_toml(const std::string& word) {
  LoadedConfig loaded = parse_config(blocks_toml, "a.toml", {"policies.checkpoint.keep=" + word});
  return make_plan(loaded, kCpu).bytes_in(Capacity::allocator);
}

}  // namespace

TEST_CASE("keep = auto: of all choices that stay within a budget, one that recomputes least") {
  const c10::Device device = GENERATE(kCpu, kCuda);
  const std::vector<Choice>& choices = choices_of_blocks(device);
  bool kept_some = false;
  for (const int64_t budget : some_budgets(choices, 10)) {
    LoadedConfig loaded = automatic(budget, blocks(2));
    const CheckpointPlacement placement = place_checkpoints(loaded, device, without_sums());
    CAPTURE(device, budget, placement.recomputed, placement.keeps, placement.plans);
    CHECK(placement.fits());
    CHECK(placement.flops == fewest_flops(choices, budget));
    CHECK(placement.targets == 2);
    const auto same = std::find_if(choices.begin(), choices.end(), [&](const Choice& one) {
      return one.recomputed == placement.recomputed && one.keeps == placement.keeps;
    });
    REQUIRE(same != choices.end());
    CHECK(placement.planned_bytes == same->bytes);
    CHECK(placement.flops == same->flops);
    kept_some |= !placement.keeps.empty();
  }
  CHECK(kept_some);
}

TEST_CASE("keep = auto: the job of the choice has its targets and results, and says where they come from") {
  const Choice two = planned(blocks(), kCpu, {"blocks.0", "blocks.1"}),
               all = planned(blocks(), kCpu, {"blocks.*"});
  LoadedConfig loaded = automatic(two.bytes);
  CHECK(placement_is_open(loaded.config));
  const CheckpointPlacement placement = place_checkpoints(loaded, kCpu, {});
  // Keeping results of more blocks beats keeping all of some.
  CHECK(placement.flops < two.flops);
  REQUIRE_FALSE(placement.keeps.empty());
  CHECK(placement.max_flops == all.flops);
  CHECK_FALSE(placement_is_open(loaded.config));
  policies::CheckpointOptions expected;
  recompute(expected, placement.recomputed, placement.keeps);
  CHECK(loaded.config.policies.checkpoint.keep == expected.keep);
  CHECK(loaded.config.policies.checkpoint.targets == placement.recomputed);
  const std::string chosen = "chosen by keep = auto under memory.budget = " + std::to_string(two.bytes);
  CHECK(text_of(loaded.origins.at("policies.checkpoint.keep")) == chosen);
  CHECK(text_of(loaded.origins.at("policies.checkpoint.targets")) == chosen);
  CHECK(loaded.config.memory.budget->bytes == two.bytes);
  const Plan plan = make_plan(loaded, kCpu);
  CHECK(plan.bytes_in(Capacity::allocator) == placement.planned_bytes);
  CHECK(plan.step.recomputed == placement.flops);
}

TEST_CASE("what modules keep, as policies.checkpoint has it") {
  policies::CheckpointOptions options;
  const Paths two = {"blocks.0", "blocks.1"};
  recompute(options, two, {});
  CHECK(options.targets == two);
  CHECK(options.keep == policies::KeepWord::block);
  recompute(options, two, {{"blocks.0", {"fc2_out"}}, {"blocks.1", {"fc2_out"}}});
  CHECK(options.keep == policies::SegmentKeeps(Paths{"fc2_out"}));
  recompute(options, two, {{"blocks.1", {"attn_out", "fc2_out"}}});
  CHECK(options.keep == policies::SegmentKeeps(Paths{"blocks.1: attn_out", "blocks.1: fc2_out"}));
  recompute(options, two, {{"blocks.0", {"attn_out"}}, {"blocks.1", {"fc2_out"}}});
  CHECK(options.keep == policies::SegmentKeeps(Paths{"blocks.0: attn_out", "blocks.1: fc2_out"}));
}

TEST_CASE("keep = auto of a policy that is off: the rows of a table that switch it on recompute all") {
  LoadedConfig loaded = automatic(1'000'000'000);
  loaded.config.policies.checkpoint.enabled = policies::Enabled::off;
  const std::vector<PlanRow> rows = plan_table(loaded, kCpu);
  CHECK(rows.size() == 32);
  const auto again = [](const PlanRow& row) { return row.plan.step.recomputed > 0; };
  CHECK(std::count_if(rows.begin(), rows.end(), again) == 16);
}

TEST_CASE("keep = auto: a run takes what was planned, to the byte") {
  LoadedConfig loaded = automatic(planned(blocks(), kCpu, {"blocks.0", "blocks.1"}).bytes);
  const CheckpointPlacement placement = place_checkpoints(loaded, kCpu, {});
  REQUIRE_FALSE(placement.keeps.empty());
  loaded.config.memory.budget.reset();  // what kernels take for themselves counts against it
  const PlanAccuracy accuracy = plan_accuracy(loaded);
  CHECK(accuracy.differences.empty());
  int64_t measured = 0;
  for (const policies::LoggedPhase& phase : accuracy.measured)
    measured = std::max(measured, phase.kept.bytes);
  CHECK(measured == placement.planned_bytes);
}

TEST_CASE("keep = auto: a budget that everything fits, by one plan") {
  const int64_t all_kept = planned(blocks(), kCpu, {}).bytes;
  LoadedConfig loaded = automatic(all_kept);
  loaded.config.policies.checkpoint.enabled = Enabled::on;
  const CheckpointPlacement placement = place_checkpoints(loaded, kCpu, {});
  CHECK(placement ==
        CheckpointPlacement{.targets = 4, .planned_bytes = all_kept, .budget_bytes = all_kept, .plans = 1});
  CHECK(loaded.config.policies.checkpoint.keep == policies::KeepWord::all);
  CHECK(loaded.config.policies.checkpoint.targets == Paths{"blocks.*"});
  // Asked for, keep = "all" would be refused.
  CHECK(loaded.config.policies.checkpoint.enabled == Enabled::by_default);
  CHECK(make_plan(loaded, kCpu).bytes_in(Capacity::allocator) == all_kept);
  CHECK(placement_text(placement) == "keep = \"auto\": all of 4 modules are kept; its plan takes " +
                                         exact_bytes(all_kept) +
                                         " of memory.budget = " + std::to_string(all_kept) + "; 1 plan made");
}

TEST_CASE("keep = auto: where nothing fits, the lowest peak is chosen and says that it does not fit") {
  const c10::Device device = GENERATE(kCpu, kCuda);
  const int64_t lowest = lowest_peak(choices_of_blocks(device));
  LoadedConfig loaded = automatic(lowest - 1, blocks(2));
  const CheckpointPlacement placement = place_checkpoints(loaded, device, without_sums());
  CAPTURE(device, placement.recomputed);
  CHECK_FALSE(placement.fits());
  CHECK(placement.planned_bytes == lowest);
  CHECK_THAT(placement_text(placement),
             Catch::Contains("more than memory.budget = " + std::to_string(lowest - 1)));
}

TEST_CASE("keep = auto: chooses among the targets only") {
  LoadedConfig given = blocks();
  given.config.policies.checkpoint.targets = {"blocks.2", "blocks.3"};
  LoadedConfig loaded = automatic(1000, given);
  const CheckpointPlacement placement = place_checkpoints(loaded, kCpu, {});
  CHECK(placement.targets == 2);
  for (const std::string& path : placement.recomputed) CHECK((path == "blocks.2" || path == "blocks.3"));
  given.config.policies.checkpoint.targets = {"block.*"};
  given.locations["policies.checkpoint.targets"] = "a.toml:3:11";
  LoadedConfig wrong = automatic(1000, given);
  CHECK_THAT(test::error_text<ConfigError>([&] { place_checkpoints(wrong, kCpu, {}); }),
             Catch::StartsWith("a.toml:3:11: policies.checkpoint.targets"));
}

TEST_CASE("keep = auto: a target that saves nothing is never recomputed") {
  LoadedConfig given = blocks();
  given.config.policies.checkpoint.targets = {"blocks.*", "y_embedder"};
  LoadedConfig loaded = automatic(1000, given);
  const CheckpointPlacement placement = place_checkpoints(loaded, kCpu, {});
  CHECK(placement.targets == 5);
  CHECK(std::count(placement.recomputed.begin(), placement.recomputed.end(), "y_embedder") == 0);
}

TEST_CASE("keep = auto: a choice survives its JSON") {
  CheckpointPlacement placement{
      {"blocks.0", "blocks.2"}, {{"blocks.2", {"attn_out", "fc2_out"}}}, 4, 12, 24, 1000, 2000, 5};
  const auto through = [](const CheckpointPlacement& one) { return read_placement(placement_json(one)); };
  CHECK(through(placement) == placement);
  placement.max_flops.reset();
  CHECK(through(placement) == placement);
}

TEST_CASE("dit-plan says what keep = auto became, in text and JSON") {
  const int64_t lowest = peak_of_toml("block"), highest = peak_of_toml("all"),
                budget = (lowest + highest) / 2;
  const Printed text = plan_within(budget);
  CHECK(text.error == "");
  CHECK_THAT(text.text, Catch::Contains("\nplacement  keep = \"auto\": ") && Catch::Contains(" of 4"));
  PlanArguments arguments;
  arguments.json = true;
  const std::string json = plan_within(budget, arguments).text;
  const auto placement = read_start_plan(json, "dit-plan").placement;
  REQUIRE(placement);
  const Json report = Json::parse(json);
  CHECK(placement->planned_bytes == report.at("peak").at("bytes").get<int64_t>());
  CHECK(placement->planned_bytes <= budget);
  CHECK(placement->flops == report.at("plan").at("step_flops").at("recomputed").get<int64_t>());
  CHECK(placement->flops < placement->max_flops);
  CHECK(placement->recomputed.size() < 4);
  arguments.table = true;
  const Json rows = Json::parse(plan_within(budget, arguments).text);
  CHECK(read_start_plan(rows.at(0).dump(), "dit-plan").placement == placement);
  arguments.json = false;
  CHECK_THAT(plan_within(budget, arguments).text, Catch::Contains("\nplacement  keep = \"auto\": "));
}

TEST_CASE("dit-plan with keep = auto: exit code 3 where nothing fits, and --max-batch with all recomputed") {
  const int64_t lowest = peak_of_toml("block");
  const Printed refused = plan_within(lowest / 2);
  CHECK_THAT(refused.error, Catch::StartsWith("does not fit into memory.budget: "));
  CHECK_THAT(refused.text, Catch::Contains(" of 4 modules are recomputed"));
  PlanArguments arguments;
  arguments.max_batch = std::to_string(lowest);
  arguments.json = true;
  const Json found = Json::parse(plan_within(2 * lowest, arguments).text);
  CHECK(found.at("largest_batch").at("batch").get<int64_t>() == 16);
  CHECK(found.at("largest_batch").at("all_recomputed").get<bool>());
  CHECK_FALSE(found.contains("placement"));
  arguments.json = false;
  CHECK_THAT(plan_within(2 * lowest, arguments).text,
             Catch::Contains("placement  keep = \"auto\" planned as \"block\": every target recomputed\n"));
}

namespace {

// Modules that differ: mixers of several widths, a fusion and a decoder.
constexpr char driving_toml[] = R"(policies.precision.cpu = "fp32"
[train]
model = "diffusion_planner"
steps = 20
threads = 1
[diffusion_planner]
hidden_dim = 32
num_heads = 2
encoder_mixer_depth = 1
encoder_fusion_depth = 1
decoder_depth = 1
mixer_tokens = 8
mixer_channels = 16
agent_num = 24
predicted_neighbor_num = 12
static_objects_num = 2
lane_num = 16
route_num = 4
polygon_num = 2
line_string_num = 6
[data]
frames = "train.json"
batch = 16
[sample]
frames = 1
)";

LoadedConfig driving() {
  return parse_config(driving_toml, "a.toml", {});
}

}  // namespace

TEST_CASE(
    "keep = auto: the best of all choices also where modules differ, and results that they keep are "
    "better") {
  const c10::Device device = GENERATE(kCpu, kCuda);
  const Paths targets = {"encoder.neighbor_encoder.blocks.0", "encoder.lane_encoder.blocks.0",
                         "encoder.fusion.blocks.0", "decoder.dit.blocks.0"};
  const std::vector<Choice> choices = all_choices(driving(), device, targets, {});
  const PlacedJob without_results = {
      .plan =
          [&](const Paths& recomputed, const ResultsByModule& keeps) {
            return plan_run(configured(driving(), recomputed, keeps), device).memory;
          },
      .targets = [&](const Paths&) { return targets; }};
  std::vector<int64_t> budgets = some_budgets(choices, 5);
  const int64_t lowest = budgets.front();
  for (size_t i = 4; i > 0; --i) budgets.push_back((budgets[i - 1] + budgets[i]) / 2);  // room for results
  budgets.push_back(lowest - 1);  // nothing fits: of those with the lowest peak, the cheapest
  bool better = false;
  for (const int64_t budget : budgets) {
    const CheckpointPlacement placement = search_placement(without_results, device, budget);
    CAPTURE(device, budget, placement.recomputed, placement.plans);
    CHECK(placement.fits() == (budget >= lowest));
    CHECK(placement.flops == fewest_flops(choices, std::max(budget, lowest)));
    LoadedConfig loaded = automatic(budget, driving());
    loaded.config.policies.checkpoint.targets = targets;
    const CheckpointPlacement with_results = place_checkpoints(loaded, device, {});
    CHECK(with_results.planned_bytes <= std::max(budget, placement.planned_bytes));
    CHECK(with_results.flops <= placement.flops);
    better |= with_results.flops < placement.flops;
  }
  CHECK(better);
}

TEST_CASE("keep = auto: a module within another has no choice of its own") {
  LoadedConfig loaded = automatic(1 << 30, driving());
  loaded.config.policies.checkpoint.targets = {"encoder.lane_encoder", "encoder.lane_encoder.blocks.*"};
  CHECK(
      test::error_text<ConfigError>([&] { place_checkpoints(loaded, kCpu, {}); }) ==
      "policies.checkpoint.targets means encoder.lane_encoder and, within it, encoder.lane_encoder.blocks.0; "
      "policies.checkpoint.keep = \"auto\" chooses for each module whether it is recomputed: name one "
      "of the two, or set policies.checkpoint.keep = \"block\"");
}
