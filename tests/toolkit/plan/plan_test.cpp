// Reports of dit-plan on small jobs: which plan is reported, and that what is said of it holds.
#include "toolkit/commands/plan.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support/catch.h"
#include "support/device/devices.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "support/one_line.h"
#include "support/runs/tiny_run.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/numbers.h"
#include "toolkit/device/device.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/plan/plan.h"
#include "toolkit/plan/plan_text.h"

using namespace dtk;
using Json = nlohmann::json;
using policies::Enabled;
using policies::highest;

namespace {

using dtk::test::kCpu;
using dtk::test::kCuda;

LoadedConfig tiny_fp32() {
  LoadedConfig loaded;
  loaded.config = test::tiny_config();
  loaded.config.policies.precision.cpu = policies::CpuPrecision::fp32;
  loaded.config.log.report = loaded.config.log.tensorboard = false;
  return loaded;
}

int64_t peak(const Plan& plan) {
  return plan.memory.peak().peak.bytes;
}

/// Bytes of a device that holds this batch.
int64_t device_for(LoadedConfig loaded, int64_t batch, c10::Device device) {
  loaded.config.data.batch = batch;
  return make_plan(loaded, device).bytes_in(Capacity::device);
}

constexpr char tiny_toml[] = R"([train]
steps = 20
threads = 1
accumulate = 2
[data]
kind = "synthetic"
samples = 60
batch = 8
[model]
depth = 2
hidden = 16
heads = 2
patch = 4
image_size = 8
channels = 1
classes = 4
learn_sigma = false
[sample]
steps = 3
guidance = 2.0
per_class = 1
)";

/// What dit-plan prints for tiny_toml.
std::string printed(std::vector<std::string> set, PlanArguments arguments = {}) {
  test::MemoryFileSystem files;
  files.create("a.toml")->write(tiny_toml, sizeof tiny_toml - 1);
  arguments.config = "a.toml";
  arguments.set = std::move(set);
  std::string text;
  run_plan(arguments, files, [&](const std::string& part) { text += part; });
  return text;
}

std::string memory_error(std::vector<std::string> set, PlanArguments arguments = {}) {
  try {
    printed(std::move(set), std::move(arguments));
  } catch (const Error& error) {
    CHECK(error.code == ExitCode::memory);
    return error.what();
  }
  return "(nothing was thrown)";
}

void check_sums(const Json& peak, int64_t bytes) {
  int64_t categories = 0, items = 0;
  for (const auto& [category, held] : peak.at("categories").items()) categories += held.get<int64_t>();
  for (const auto& [category, labels] : peak.at("items").items()) {
    for (const auto& [label, held] : labels.items()) items += held.get<int64_t>();
  }
  CHECK(categories == bytes);
  CHECK(items == bytes);
}

}  // namespace

TEST_CASE("a table has each of the 32 combinations once, the lowest peak first") {
  for (const c10::Device device : {kCuda, kCpu}) {
    const std::vector<PlanRow> rows = plan_table(tiny_fp32(), device);
    REQUIRE(rows.size() == 32);
    std::set<policies::PolicySwitches> seen;
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK(seen.insert(rows[i].on).second);
      if (i > 0) CHECK(peak(rows[i - 1].plan) <= peak(rows[i].plan));
    }
    // On the CPU the average has nothing to move, and a job this small may lose by any other policy.
    if (device.is_cuda()) CHECK(peak(rows.front().plan) < peak(rows.back().plan));
  }
}

TEST_CASE("a row of the table is the plan of that configuration") {
  LoadedConfig off = tiny_fp32(), on = tiny_fp32();
  off.config.policies.precision.enabled = off.config.policies.attention.enabled = Enabled::off;
  off.config.policies.checkpoint.enabled = Enabled::off;
  off.config.policies.ema.device = policies::EmaDevice::same;
  const std::vector<PlanRow> rows = plan_table(tiny_fp32(), kCuda);
  for (const PlanRow& row : rows) {
    if (row.on == policies::PolicySwitches{false, false, false, false, false})
      CHECK(peak(row.plan) == peak(make_plan(off, kCuda)));
    if (row.on == policies::PolicySwitches{true, true, false, true, true})
      CHECK(peak(row.plan) == peak(make_plan(on, kCuda)));
  }
}

TEST_CASE("the runner-up is a lower peak of another phase") {
  const Plan plan = make_plan(tiny_fp32(), kCuda);
  const auto second = plan.runner_up();
  REQUIRE(second);
  CHECK(second->name != plan.memory.peak().name);
  CHECK(second->peak.bytes <= peak(plan));
  CHECK(second->peak.items() != plan.memory.peak().peak.items());
  for (const policies::PhasePeak& phase : plan.memory.phases) {
    if (phase.peak.items() != plan.memory.peak().peak.items()) CHECK(phase.peak.bytes <= second->peak.bytes);
  }
}

TEST_CASE("a policy's effect is the difference of two plans, and 0 bytes name what the peak is") {
  const Plan plan = make_plan(tiny_fp32(), kCuda);
  const auto effects = explain_policies(plan, kCuda);
  REQUIRE(effects.size() == 5);
  LoadedConfig without = tiny_fp32();
  without.config.policies.checkpoint.enabled = Enabled::off;
  CHECK(effects[4].policy == "checkpoint");
  CHECK(effects[4].on);
  CHECK(peak(*effects[4].switched) == peak(make_plan(without, kCuda)));
  without = tiny_fp32();
  without.config.policies.ema.device = policies::EmaDevice::same;
  CHECK(peak(*effects[3].switched) == peak(make_plan(without, kCuda)));
  CHECK(effects[3].switched->memory.host.peak.bytes < plan.memory.host.peak.bytes);
  const std::string text = explain_text(plan, effects);
  CHECK_THAT(text, Catch::Contains("  ema        on   on the training device, the peak rises by "));
  CHECK_THAT(test::one_line(text), Catch::Contains("; host memory falls by "));
}

TEST_CASE("what a block gains as a segment is what policies.checkpoint with it alone saves less") {
  for (const c10::Device device : {kCuda, kCpu}) {
    LoadedConfig loaded = tiny_fp32();
    loaded.config.policies.checkpoint.targets = {"blocks.0"};
    const Plan plan = make_plan(loaded, device);
    const planner::Explanation why = explain_segments(plan, explain_policies(plan, device), device);
    REQUIRE(why.recomputed);
    CHECK(why.recomputes);
    CHECK(highest(why.recomputed->plan.device).peak.bytes == peak(plan));
    CHECK(why.segments == "policies.checkpoint, which recomputes 1 module in 1 segment, blocks.0");
    std::map<std::string, planner::SegmentGain> segments;
    for (const planner::SegmentGain& one : why.plain.segments) segments[one.path] = one;
    CHECK(segments.size() == 3 + static_cast<size_t>(dit::options_of(loaded.config).model.depth.value()) + 1);
    CHECK(segments.at("blocks.0").gain == why.plain.saved - why.recomputed->saved);
    CHECK(segments.at("blocks.0").gain > 0);
    CHECK(segments.at("x_embedder").gain <= 0);
    CHECK_FALSE(segments.at("x_embedder").reason.empty());
    CHECK(why.plain.max_gain() < why.plain.saved);
    CHECK(why.recomputed->recomputed_held.path == "blocks.0");
    CHECK(why.alternatives.size() == 5);
  }
}

TEST_CASE("a job without checkpointing is explained as it is") {
  LoadedConfig loaded = tiny_fp32();
  loaded.config.policies.checkpoint.enabled = Enabled::off;
  const Plan plan = make_plan(loaded, kCuda);
  const planner::Explanation why = explain_segments(plan, {}, kCuda);
  CHECK(&why.job() == &why.plain);
  CHECK(highest(why.plain.plan.device).peak.bytes == peak(plan));
  CHECK(why.segments.starts_with("policies.checkpoint, which recomputes "));
}

TEST_CASE("the largest batch fits and the next does not") {
  const LoadedConfig loaded = tiny_fp32();
  for (const c10::Device device : {kCuda, kCpu}) {
    const int64_t budget = device_for(loaded, 26, device);
    const LargestPlannedBatch found = largest_planned_batch(loaded, device, budget);
    REQUIRE(found.largest);
    REQUIRE(found.next);
    const int64_t batch = found.largest->loaded.config.data.batch;
    CHECK(batch >= 26);
    CHECK(batch % 2 == 0);
    CHECK(found.next->loaded.config.data.batch == batch + 2);
    CHECK(device_for(loaded, batch, device) <= budget);
    CHECK(device_for(loaded, batch + 2, device) > budget);
    CHECK(found.largest->bytes_in(Capacity::device) == device_for(loaded, batch, device));
    CHECK(found.next->bytes_in(Capacity::device) == device_for(loaded, batch + 2, device));
  }
}

// Checkpointing recomputes one block at a time: the more blocks there are, the more it frees.
// benchmarks/policies/batch_at_budget asks for all 12, and largest_batch_test runs steps of smaller blocks.
TEST_CASE("of blocks of DiT-S/2 on 256 tokens several times as many samples fit with the policies") {
  struct Wide {
    int64_t blocks, budget, without, with;
  };
  const Wide wide = GENERATE(Wide{2, 200'000'000, 4, 22}, Wide{4, 300'000'000, 2, 20});
  const auto largest = [&](bool with) {
    LoadedConfig loaded;
    RunConfig& config = loaded.config = test::tiny_config();
    config.train.accumulate = 1;
    config.data.kind = "synthetic";
    config.data.samples = 64;
    config.data.prefetch = 1;
    config.log.report = config.log.tensorboard = false;
    models::DitOptions& model = dit::options_of(config).model;
    model.depth = wide.blocks;
    model.hidden = 384;
    model.heads = 6;
    model.patch = 2;
    model.image_size = 32;
    model.channels = 4;
    model.classes = 10;
    model.mlp_dropout = 0;
    const Enabled enabled = with ? Enabled::on : Enabled::off;
    config.policies.precision.enabled = enabled;
    config.policies.precision.cpu = policies::CpuPrecision::bf16;
    config.policies.attention.enabled = enabled;
    config.policies.fusion.enabled = enabled;
    config.policies.checkpoint.enabled = enabled;
    if (!with) config.policies.ema.device = policies::EmaDevice::same;
    const LargestPlannedBatch found = largest_planned_batch(loaded, kCpu, wide.budget);
    REQUIRE(found.largest);
    REQUIRE(found.next);
    return found.largest->loaded.config.data.batch;
  };
  CHECK(largest(false) == wide.without);
  CHECK(largest(true) == wide.with);
}

TEST_CASE("what a device adds takes room: all of it on a device, without the context in a budget") {
  const Plan on_cuda = make_plan(tiny_fp32(), kCuda), on_cpu = make_plan(tiny_fp32(), kCpu);
  CHECK(on_cpu.bytes_in(Capacity::device) == peak(on_cpu));
  CHECK(on_cpu.bytes_in(Capacity::allocator) == peak(on_cpu));
  std::map<std::string, int64_t> terms;
  for (const planner::DeviceTerm& term : on_cuda.terms) terms[term.name] = term.bytes;
  REQUIRE(terms.at("workspaces") > 0);
  REQUIRE(terms.at("context") > 0);
  CHECK(on_cuda.bytes_in(Capacity::allocator) ==
        peak(on_cuda) + terms.at("rounding") + terms.at("workspaces"));
  CHECK(on_cuda.bytes_in(Capacity::device) == on_cuda.bytes_in(Capacity::allocator) + terms.at("context"));
}

TEST_CASE("0 bytes have a reason: what the peak is, and what the policy reports") {
  LoadedConfig loaded = tiny_fp32();
  const Plan plan = make_plan(loaded, kCpu);
  const std::string text = explain_text(plan, explain_policies(plan, kCpu));
  const size_t begin = text.find("  ema "), end = text.find("  checkpoint ");
  REQUIRE(begin < end);
  std::string ema;  // as one line
  for (const char c : text.substr(begin, end - begin))
    if (c != '\n' && (c != ' ' || ema.empty() || ema.back() != ' ')) ema += c;
  CHECK_THAT(ema, Catch::Contains("0 bytes: ") && Catch::Contains(" of this peak, which falls in phase ") &&
                      Catch::Contains("training device is the CPU, nothing to move"));
}

TEST_CASE("the data set ends the search for the largest batch") {
  LoadedConfig loaded = tiny_fp32();
  loaded.config.data.samples = 21;
  loaded.config.data.validation = 4;
  const LargestPlannedBatch found = largest_planned_batch(loaded, kCuda, int64_t{1} << 40);
  CHECK(found.largest->loaded.config.data.batch == 16);
  CHECK_FALSE(found.next);
}

TEST_CASE("a precision that training will measure is planned both ways, and the larger peak is reported") {
  LoadedConfig probe = tiny_fp32(), fp32 = tiny_fp32(), bf16 = tiny_fp32();
  probe.config.policies.precision.cpu = policies::CpuPrecision::probe;
  bf16.config.policies.precision.cpu = policies::CpuPrecision::bf16;
  CHECK(make_plan(probe, kCuda).precisions.empty());
  const Plan plan = make_plan(probe, kCpu);
  REQUIRE(plan.precisions.size() == 2);
  CHECK(plan.precisions[0].precision == policies::CpuPrecision::bf16);
  CHECK(plan.precisions[0].peak_bytes == peak(make_plan(bf16, kCpu)));
  CHECK(plan.precisions[1].precision == policies::CpuPrecision::fp32);
  CHECK(plan.precisions[1].peak_bytes == peak(make_plan(fp32, kCpu)));
  CHECK(peak(plan) == std::max(plan.precisions[0].peak_bytes, plan.precisions[1].peak_bytes));
  CHECK_THAT(plan_text("a.toml", plan), Catch::Contains("\nprecision  bf16 "));
  CHECK(plan.of_precision == PlannedPrecision::larger);
}

TEST_CASE("a budget that one precision fits decides between them") {
  LoadedConfig probe = tiny_fp32();
  probe.config.policies.precision.cpu = policies::CpuPrecision::probe;
  const std::vector<PossiblePrecision> both = make_plan(probe, kCpu).precisions;
  REQUIRE(both[0].peak_bytes != both[1].peak_bytes);
  const PossiblePrecision smaller = both[0].peak_bytes < both[1].peak_bytes ? both[0] : both[1];
  const auto within = [&](int64_t bytes) {
    probe.config.memory.budget = ByteSize{bytes};
    return make_plan(probe, kCpu);
  };
  const Plan plan = within(smaller.peak_bytes);
  REQUIRE(plan.of_precision == PlannedPrecision::only_fitting);
  CHECK(plan.loaded.config.policies.precision.cpu == smaller.precision);
  CHECK_THAT(test::one_line(plan_text("a.toml", plan)),
             Catch::Contains(std::string("; training takes ") + policies::text_of(smaller.precision) +
                             ", as only that fits memory.budget"));
  CHECK(peak(plan) == smaller.peak_bytes);
  CHECK_THAT(
      test::one_line(plan_text("a.toml", plan)),
      Catch::Contains(" of memory for tensors; fits memory.budget but for scratch, which is not known "));
  const Plan none = within(smaller.peak_bytes - 1);
  CHECK(none.of_precision == PlannedPrecision::smaller);
  CHECK(peak(none) == smaller.peak_bytes);
  CHECK_THAT(test::one_line(plan_text("a.toml", none)),
             Catch::Contains("; exceeds memory.budget = " + exact_bytes(smaller.peak_bytes - 1)) &&
                 Catch::Contains("; neither fits memory.budget; this is the smaller"));
  const int64_t larger = std::max(both[0].peak_bytes, both[1].peak_bytes);
  CHECK(within(larger).of_precision == PlannedPrecision::larger);
  CHECK(peak(within(larger)) == larger);
}

TEST_CASE("a budget is of what LibTorch allocates of a device's need, and the verdict says so") {
  LoadedConfig loaded = tiny_fp32();
  loaded.config.memory.budget = ByteSize{int64_t{1} << 30};
  const Plan plan = make_plan(loaded, kCuda);
  REQUIRE(plan.bytes_in(Capacity::allocator) < plan.bytes_in(Capacity::device));
  CHECK_THAT(test::one_line(plan_text("a.toml", plan)),
             Catch::Contains(" with what the device adds; the ") &&
                 Catch::Contains(" of it that LibTorch allocates fit memory.budget; fits a card of 6 GB"));
}

TEST_CASE("a last batch that nobody knows is taken to be as long as it can be, and said so") {
  LoadedConfig loaded = tiny_fp32();
  loaded.config.data.drop_last = false;
  loaded.config.data.samples = loaded.config.data.batch * 50 + 1;
  const Plan known = make_plan(loaded, kCuda);
  loaded.config.data.samples.reset();
  const Plan unknown = make_plan(loaded, kCuda);
  const auto last_batch = [](const Plan& plan) {
    return policies::phase_named(plan.memory.phases, "last_batch")->peak.bytes;
  };
  CHECK(last_batch(known) < last_batch(unknown));
  CHECK_THAT(plan_text("a.toml", known), !Catch::Contains("last batch "));
  CHECK_THAT(plan_text("a.toml", unknown),
             Catch::Contains("\nlast batch of an epoch, as data.samples is not given: taken to have " +
                             std::to_string(loaded.config.data.batch - 1) + " samples"));
}

TEST_CASE("an average that is switched off is not called one on the device") {
  LoadedConfig loaded = tiny_fp32();
  const Plan on = make_plan(loaded, kCuda);
  loaded.config.policies.ema.enabled = Enabled::off;
  const Plan off = make_plan(loaded, kCuda);
  CHECK_THAT(test::one_line(explain_text(on, {})), Catch::Contains("; the average on the training device;"));
  CHECK_THAT(test::one_line(explain_text(off, {})), Catch::Contains("; no average, as configured;"));
  for (const policies::PolicyReport& report : on.policies)
    CHECK_THAT(report.reason, !Catch::Contains(" ms "));  // nobody measured it
}

TEST_CASE("without folding every pass is planned, and the peaks are the same") {
  LoadedConfig loaded = tiny_fp32();
  loaded.config.sample.steps = 12;
  const Plan folded = make_plan(loaded, kCuda), whole = make_plan(loaded, kCuda, {.fold = false});
  CHECK(folded.folded.size() == 2);
  CHECK(folded.folded.at("steady steps") == 1);
  CHECK(whole.folded.empty());
  CHECK(peak(folded) == peak(whole));
  CHECK_THAT(plan_text("a.toml", whole), Catch::Contains("\nplanned    every pass of every loop, in "));
  CHECK_THAT(plan_text("a.toml", folded), Catch::Contains("\nplanned    all but "));
  CHECK_THAT(plan_text("a.toml", folded),
             Catch::Contains(" GMAC a sample; ") && Catch::Contains(" recomputed\n"));
}

TEST_CASE("memory.budget: the report is printed, then the error says what is exceeded") {
  CHECK(memory_error({"memory.budget=1GB"}) == "(nothing was thrown)");
  const Plan plan = make_plan(
      [] {
        LoadedConfig loaded = parse_config(tiny_toml, "a.toml", {});
        return loaded;
      }(),
      kCuda);
  const policies::PhasePeak highest = plan.memory.peak();
  const int64_t needed = plan.bytes_in(Capacity::allocator);
  CHECK(memory_error({"memory.budget=" + std::to_string(needed)}) == "(nothing was thrown)");
  CHECK(memory_error({"memory.budget=" + std::to_string(needed - 1)}) ==
        "does not fit into memory.budget: the peak of " + exact_bytes(highest.peak.bytes) + ", in phase " +
            highest.name + ", with " + exact_bytes(needed - highest.peak.bytes) +
            " that the device adds, exceeds " + exact_bytes(needed - 1) +
            "; --max-batch BYTES finds the largest batch that fits so many, --table says what other policies "
            "take");
  const std::string parameters = std::to_string(highest.peak.of(policies::Category::parameters));
  CHECK(
      memory_error({"memory.budget=1000"}) ==
      "does not fit into memory.budget: the parameters alone take " +
          readable_bytes(highest.peak.of(policies::Category::parameters)) + " (" + parameters +
          " bytes), more than 1000 B (1000 bytes); use a smaller model or a larger device; a number alone is "
          "bytes: larger sizes have a unit, such as \"2GB\" or \"1.5 GiB\"");
}

TEST_CASE("no batch and no row that fits is an error of its own") {
  PlanArguments arguments;
  arguments.max_batch = "1kB";
  CHECK_THAT(memory_error({}, arguments),
             Catch::StartsWith("--max-batch 1kB: not even data.batch = 2 fits: the parameters alone take "));
  arguments.max_batch.clear();
  arguments.table = true;
  CHECK_THAT(
      memory_error({"memory.budget=1kB"}, arguments),
      Catch::StartsWith("none of the 32 combinations fits into memory.budget: with the lowest peak, the "
                        "parameters alone take "));
}

TEST_CASE("JSON has memory.json's fields and sums that match") {
  PlanArguments arguments;
  arguments.json = true;
  const Json json = Json::parse(printed({}, arguments));
  CHECK(json.at("version") == 1);
  CHECK(json.at("device") == "cuda:0");
  check_sums(json.at("peak"), json.at("peak").at("bytes"));
  check_sums(json.at("host"), json.at("host").at("peak_bytes"));
  for (const Json& phase : json.at("phases")) check_sums(phase, phase.at("peak_bytes"));
  CHECK(json.at("plan").at("batch") == 8);
  CHECK(json.at("plan").at("runner_up").at("bytes") <= json.at("peak").at("bytes"));
  CHECK_FALSE(json.contains("policies"));
  arguments.explain = true;
  const Json explained = Json::parse(printed({}, arguments));
  REQUIRE(explained.at("policies").size() == 5);
  CHECK(explained.at("policies")[4].at("name") == "checkpoint");
  CHECK(explained.at("policies")[4].at("lowers_peak_by").is_number());
  CHECK(explained.at("why").at("saved") > explained.at("why").at("recomputed").at("saved"));
  CHECK(explained.at("why").at("recomputed").at("peak").at("bytes") == explained.at("peak").at("bytes"));
  arguments.explain = false;
  arguments.table = true;
  const Json table = Json::parse(printed({}, arguments));
  REQUIRE(table.size() == 32);
  for (size_t i = 1; i < table.size(); ++i)
    CHECK(table[i - 1].at("peak").at("bytes") <= table[i].at("peak").at("bytes"));
  arguments.table = false;
  arguments.max_batch = "1GB";
  const Json largest = Json::parse(printed({}, arguments)).at("largest_batch");
  CHECK(largest.at("budget_bytes") == 1'000'000'000);
  CHECK(largest.at("device_bytes") <= 1'000'000'000);
  CHECK(largest.at("device_bytes") > largest.at("peak_bytes"));
}

TEST_CASE("a part of the device becomes bytes when a run begins on it") {
  LoadedConfig loaded = parse_config(tiny_toml, "a.toml", {"memory.budget=50%"});
  resolve_budget(loaded, kCpu);
  CHECK(loaded.config.memory.budget->bytes == *device_memory(kCpu) / 2);
  CHECK(loaded.config.memory.budget->percent == 0);
  CHECK(text_of(loaded.origins.at("memory.budget")) == "measured: 50% of this cpu");
  CHECK(device_memory(c10::Device(c10::kCUDA, 100)) == std::nullopt);
  CHECK(test::error_text<ConfigError>(
            [] { part_of_device(80, c10::Device(c10::kCUDA, 100), "--max-batch 80%"); }) ==
        "--max-batch 80%: a part of the device present, and this machine has no cuda:100; write a number of "
        "bytes, "
        "such as \"24GB\", \"24GiB\" or \"24e9\"");
}
