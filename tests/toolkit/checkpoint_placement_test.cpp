// policies.checkpoint.keep = "auto": that the choice is the best of all, that its plan is what a run takes,
// and what dit-plan says of it.
#include <dtk/toolkit/checkpoint_placement.h>
#include <dtk/toolkit/errors.h>
#include <dtk/toolkit/plan_accuracy.h>
#include <dtk/toolkit/plan_command.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/memory_file_system.h"
#include "support/tiny_run.h"

using namespace dtk;
using Json = nlohmann::json;
using policies::Enabled;
using Paths = std::vector<std::string>;

namespace {

const c10::Device cpu(c10::kCPU), cuda("cuda:0");

/// Four blocks over 64 tokens, whose activations are most of the job.
LoadedConfig blocks() {
  LoadedConfig loaded;
  loaded.config = test::tiny_config();
  loaded.config.train.accumulate = 1;
  loaded.config.data.batch = 16;
  loaded.config.model.depth = 4;
  loaded.config.model.hidden = 32;
  loaded.config.model.patch = 1;
  loaded.config.policies.precision.cpu = "fp32";
  loaded.config.log.report = loaded.config.log.tensorboard = false;
  return loaded;
}

LoadedConfig automatic(int64_t budget, LoadedConfig loaded = blocks()) {
  loaded.config.policies.checkpoint.keep = "auto";
  loaded.config.memory.budget = ByteSize{budget};
  return loaded;
}

struct Choice {
  Paths recomputed;
  int64_t bytes = 0, flops = 0;
};

Choice planned(const Paths& recomputed, c10::Device device) {
  LoadedConfig loaded = blocks();
  loaded.config.policies.checkpoint.targets = recomputed;
  if (recomputed.empty()) loaded.config.policies.checkpoint.enabled = Enabled::off;
  const Plan plan = make_plan(loaded, device);
  return {recomputed, plan.bytes_in(Room::allocator), plan.step.recomputed};
}

std::vector<Choice> all_choices(c10::Device device) {
  std::vector<Choice> all;
  for (int mask = 0; mask < 16; ++mask) {
    Paths recomputed;
    for (int block = 0; block < 4; ++block) {
      if (mask >> block & 1) recomputed.push_back("blocks." + std::to_string(block));
    }
    all.push_back(planned(recomputed, device));
  }
  return all;
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

Printed printed(int64_t budget, PlanArguments arguments = {}) {
  test::MemoryFileSystem files;
  files.create("a.toml")->write(blocks_toml, sizeof blocks_toml - 1);
  arguments.config = "a.toml";
  arguments.device = "cpu";
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
  return make_plan(loaded, cpu).bytes_in(Room::allocator);
}

}  // namespace

TEST_CASE("keep = auto: of all choices that stay within a budget, one that computes least again") {
  const c10::Device device = GENERATE(cpu, cuda);
  const std::vector<Choice> choices = all_choices(device);
  std::set<int64_t> budgets;
  for (const Choice& one : choices) budgets.insert(one.bytes);
  REQUIRE(budgets.size() > 4);
  for (const int64_t budget : budgets) {
    LoadedConfig loaded = automatic(budget);
    const CheckpointPlacement placement = place_checkpoints(loaded, device, {});
    CAPTURE(device, budget, placement.recomputed, placement.plans);
    int64_t least = INT64_MAX;
    for (const Choice& one : choices) {
      if (one.bytes <= budget) least = std::min(least, one.flops);
    }
    CHECK(placement.fits());
    CHECK(placement.flops == least);
    CHECK(placement.targets == 4);
    const auto same = std::find_if(choices.begin(), choices.end(),
                                   [&](const Choice& one) { return one.recomputed == placement.recomputed; });
    REQUIRE(same != choices.end());
    CHECK(placement.planned_bytes == same->bytes);
    CHECK(placement.flops == same->flops);
  }
}

TEST_CASE("keep = auto: the job of the choice has its targets, and says where they come from") {
  const Choice two = planned({"blocks.0", "blocks.1"}, cpu), all = planned({"blocks.*"}, cpu);
  LoadedConfig loaded = automatic(two.bytes);
  CHECK(placement_is_open(loaded.config));
  const CheckpointPlacement placement = place_checkpoints(loaded, cpu, {});
  // The last blocks keep all: their bytes are let go of before the others are computed again.
  CHECK(placement.recomputed == Paths{"blocks.0", "blocks.1"});
  CHECK(placement.most_flops == all.flops);
  CHECK(placement.flops * 2 == all.flops);
  CHECK_FALSE(placement_is_open(loaded.config));
  CHECK(loaded.config.policies.checkpoint.keep == "block");
  CHECK(loaded.config.policies.checkpoint.targets == placement.recomputed);
  const std::string chosen = "chosen by keep = auto under memory.budget = " + std::to_string(two.bytes);
  CHECK(loaded.origins.at("policies.checkpoint.keep") == chosen);
  CHECK(loaded.origins.at("policies.checkpoint.targets") == chosen);
  CHECK(loaded.config.memory.budget->bytes == two.bytes);
  CHECK(make_plan(loaded, cpu).bytes_in(Room::allocator) == placement.planned_bytes);
}

TEST_CASE("keep = auto of a policy that is off: the rows of a table that switch it on compute all again") {
  LoadedConfig loaded = automatic(1'000'000'000);
  loaded.config.policies.checkpoint.enabled = policies::Enabled::off;
  const std::vector<PlanRow> rows = plan_table(loaded, cpu);
  CHECK(rows.size() == 16);
  const auto again = [](const PlanRow& row) { return row.plan.step.recomputed > 0; };
  CHECK(std::count_if(rows.begin(), rows.end(), again) == 8);
}

TEST_CASE("keep = auto: a run takes what was planned, to the byte") {
  LoadedConfig loaded = automatic(planned({"blocks.0", "blocks.1"}, cpu).bytes);
  const CheckpointPlacement placement = place_checkpoints(loaded, cpu, {});
  REQUIRE(placement.recomputed.size() == 2);
  loaded.config.memory.budget.reset();  // what kernels take for themselves counts against it
  const PlanAccuracy accuracy = plan_accuracy(loaded);
  CHECK(accuracy.differences.empty());
  int64_t measured = 0;
  for (const policies::KeptPhase& phase : accuracy.measured) measured = std::max(measured, phase.kept.bytes);
  CHECK(measured == placement.planned_bytes);
}

TEST_CASE("keep = auto: a budget that everything fits, by one plan") {
  const int64_t all_kept = planned({}, cpu).bytes;
  LoadedConfig loaded = automatic(all_kept);
  loaded.config.policies.checkpoint.enabled = Enabled::on;
  const CheckpointPlacement placement = place_checkpoints(loaded, cpu, {});
  CHECK(placement ==
        CheckpointPlacement{.targets = 4, .planned_bytes = all_kept, .budget_bytes = all_kept, .plans = 1});
  CHECK(loaded.config.policies.checkpoint.keep == "all");
  CHECK(loaded.config.policies.checkpoint.targets == Paths{"blocks.*"});
  // Asked for, keep = "all" would be refused.
  CHECK(loaded.config.policies.checkpoint.enabled == Enabled::by_default);
  CHECK(make_plan(loaded, cpu).bytes_in(Room::allocator) == all_kept);
  CHECK(placement_text(placement) == "keep = \"auto\": all of 4 sub-trees are kept; its plan takes " +
                                         exact_bytes(all_kept) +
                                         " of memory.budget = " + std::to_string(all_kept) + "; 1 plan made");
}

TEST_CASE("keep = auto: where nothing fits, the lowest peak is chosen and says that it does not fit") {
  const c10::Device device = GENERATE(cpu, cuda);
  const std::vector<Choice> choices = all_choices(device);
  int64_t lowest = INT64_MAX;
  for (const Choice& one : choices) lowest = std::min(lowest, one.bytes);
  LoadedConfig loaded = automatic(lowest - 1);
  const CheckpointPlacement placement = place_checkpoints(loaded, device, {});
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
  const CheckpointPlacement placement = place_checkpoints(loaded, cpu, {});
  CHECK(placement.targets == 2);
  for (const std::string& path : placement.recomputed) CHECK((path == "blocks.2" || path == "blocks.3"));
  given.config.policies.checkpoint.targets = {"block.*"};
  given.places["policies.checkpoint.targets"] = "a.toml:3:11";
  LoadedConfig wrong = automatic(1000, given);
  CHECK_THAT(test::error_text<ConfigError>([&] { place_checkpoints(wrong, cpu, {}); }),
             Catch::StartsWith("a.toml:3:11: policies.checkpoint.targets"));
}

TEST_CASE("keep = auto: a target that saves nothing is never computed again") {
  LoadedConfig given = blocks();
  given.config.policies.checkpoint.targets = {"blocks.*", "y_embedder"};
  LoadedConfig loaded = automatic(1000, given);
  const CheckpointPlacement placement = place_checkpoints(loaded, cpu, {});
  CHECK(placement.targets == 5);
  CHECK(std::count(placement.recomputed.begin(), placement.recomputed.end(), "y_embedder") == 0);
}

TEST_CASE("keep = auto: a choice survives its JSON") {
  CheckpointPlacement placement{{"blocks.0", "blocks.2"}, 4, 12, 24, 1000, 2000, 5};
  const auto through = [](const CheckpointPlacement& one) {
    return read_placement("{\"placement\": " + placement_json(one) + "}");
  };
  CHECK(through(placement) == placement);
  placement.most_flops.reset();
  CHECK(through(placement) == placement);
  CHECK(read_placement("{\"device\": \"cpu\"}") == std::nullopt);
  CHECK(read_placement("dit-plan: no") == std::nullopt);
}

TEST_CASE("dit-plan says what keep = auto became, in text and JSON") {
  const int64_t least = peak_of_toml("block"), most = peak_of_toml("all"), budget = (least + most) / 2;
  const Printed text = printed(budget);
  CHECK(text.error == "");
  CHECK_THAT(text.text, Catch::Contains("\nplacement  keep = \"auto\": ") && Catch::Contains(" of 4"));
  PlanArguments arguments;
  arguments.json = true;
  const std::string json = printed(budget, arguments).text;
  const auto placement = read_placement(json);
  REQUIRE(placement);
  const Json report = Json::parse(json);
  CHECK(placement->planned_bytes == report.at("peak").at("bytes").get<int64_t>());
  CHECK(placement->planned_bytes <= budget);
  CHECK(placement->flops == report.at("plan").at("step_flops").at("recomputed").get<int64_t>());
  CHECK(placement->flops < placement->most_flops);
  CHECK(placement->recomputed.size() < 4);
  arguments.table = true;
  CHECK(read_placement(Json::parse(printed(budget, arguments).text).at(0).dump()) == placement);
  arguments.json = false;
  CHECK_THAT(printed(budget, arguments).text, Catch::Contains("\nplacement  keep = \"auto\": "));
}

TEST_CASE(
    "dit-plan with keep = auto: exit code 3 where nothing fits, and --max-batch with all computed again") {
  const int64_t least = peak_of_toml("block");
  const Printed refused = printed(least / 2);
  CHECK_THAT(refused.error, Catch::StartsWith("does not fit into memory.budget: "));
  CHECK_THAT(refused.text, Catch::Contains(" of 4 sub-trees are computed again"));
  PlanArguments arguments;
  arguments.max_batch = std::to_string(least);
  arguments.json = true;
  const Json found = Json::parse(printed(2 * least, arguments).text);
  CHECK(found.at("largest_batch").at("batch").get<int64_t>() == 16);
  CHECK(found.at("largest_batch").at("all_recomputed").get<bool>());
  CHECK_FALSE(found.contains("placement"));
  arguments.json = false;
  CHECK_THAT(
      printed(2 * least, arguments).text,
      Catch::Contains("placement  keep = \"auto\" planned as \"block\": every target computed again\n"));
}

namespace {

// Sub-trees that differ: mixers of several widths, a fusion and a decoder.
constexpr char driving_toml[] = R"(policies.precision.cpu = "fp32"
[train]
model = "diffusion_planner"
steps = 20
threads = 1
[planner]
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
batch = 2
[sample]
frames = 1
)";

LoadedConfig driving(const Paths& targets) {
  LoadedConfig loaded = parse_config(driving_toml, "a.toml", {});
  loaded.config.policies.checkpoint.targets = targets;
  loaded.config.policies.checkpoint.enabled = targets.empty() ? Enabled::off : Enabled::by_default;
  return loaded;
}

}  // namespace

TEST_CASE("keep = auto: the best of all choices also where sub-trees differ") {
  const c10::Device device = GENERATE(cpu, cuda);
  const Paths targets = {"encoder.neighbor_encoder.blocks.0", "encoder.lane_encoder.blocks.0",
                         "encoder.fusion.blocks.0", "decoder.dit.blocks.0"};
  std::vector<Choice> choices;
  for (size_t mask = 0; mask < size_t{1} << targets.size(); ++mask) {
    Paths recomputed;
    for (size_t i = 0; i < targets.size(); ++i) {
      if (mask >> i & 1) recomputed.push_back(targets[i]);
    }
    const Plan plan = make_plan(driving(recomputed), device);
    choices.push_back({recomputed, plan.bytes_in(Room::allocator), plan.step.recomputed});
  }
  std::set<int64_t> budgets, costs;
  for (const Choice& one : choices) budgets.insert(one.bytes), costs.insert(one.flops);
  REQUIRE(budgets.size() > 5);
  REQUIRE(costs.size() == choices.size());
  budgets.insert(*budgets.begin() - 1);  // nothing fits: of those with the lowest peak, the cheapest
  for (const int64_t budget : budgets) {
    LoadedConfig loaded = automatic(budget, driving(targets));
    const CheckpointPlacement placement = place_checkpoints(loaded, device, {});
    CAPTURE(device, budget, placement.recomputed, placement.plans);
    int64_t least = INT64_MAX;
    for (const Choice& one : choices) {
      if (one.bytes <= std::max(budget, *std::next(budgets.begin()))) least = std::min(least, one.flops);
    }
    CHECK(placement.fits() == (budget != *budgets.begin()));
    CHECK(placement.flops == least);
  }
}

TEST_CASE("keep = auto: a sub-tree within another has no choice of its own") {
  LoadedConfig loaded =
      automatic(1 << 30, driving({"encoder.lane_encoder", "encoder.lane_encoder.blocks.*"}));
  CHECK(
      test::error_text<ConfigError>([&] { place_checkpoints(loaded, cpu, {}); }) ==
      "policies.checkpoint.targets means encoder.lane_encoder and, within it, encoder.lane_encoder.blocks.0; "
      "policies.checkpoint.keep = \"auto\" chooses for each sub-tree whether it is computed again: name one "
      "of the two, or use keep = \"block\"");
}
