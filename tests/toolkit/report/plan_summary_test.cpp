#include "toolkit/report/plan_summary.h"

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/error_text.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/json.h"

using namespace dtk;
using policies::Category;
using policies::MemorySums;

namespace {

MemorySums sums(std::vector<std::tuple<Category, std::string, int64_t>> items) {
  MemorySums result;
  for (const auto& [category, label, bytes] : items) {
    const policies::OwnerId owner = policies::owner_id(category, label);
    if (result.by_owner.size() <= owner.index) result.by_owner.resize(owner.index + 1, 0);
    result.by_owner[owner.index] += bytes;
    result.bytes += bytes;
  }
  return result;
}

MemoryReport two_phases() {
  MemoryReport report;
  report.device = c10::kCPU;
  report.phases = {
      {"forward", sums({{Category::parameters, "net", 1000}, {Category::saved, "net.0", 234}})},
      {"optimizer", sums({{Category::parameters, "net", 1000}, {Category::optimizer, "m", 2000}})}};
  return report;
}

/// As dit-plan --json prints it with `more`.
DeviceOverhead beside_in(const std::string& more) {
  nlohmann::json json = memory_json(two_phases());
  json.update(nlohmann::json::parse(more));
  return read_start_plan(json.dump(), "dit-plan").beside;
}

MemoryOptions budget(int64_t bytes) {
  MemoryOptions options;
  options.budget = ByteSize{bytes};
  return options;
}

}  // namespace

TEST_CASE("a memory report reads back as it was written") {
  const MemoryReport written = two_phases();
  const MemoryReport read = read_start_plan(json_text(memory_json(written)), "x").memory.value();
  CHECK(read.device == c10::kCPU);
  CHECK(memory_json(read) == memory_json(written));
}

TEST_CASE("what is no memory report is refused by name") {
  CHECK_THAT(test::error_text<FileError>([] { read_start_plan("{\"device\": 1}", "plan.json"); }),
             Catch::Matchers::StartsWith("plan.json: not a memory report: "));
  CHECK_THAT(test::error_text<FileError>([] { read_start_plan("dit-plan: no", "plan.json"); }),
             Catch::Matchers::StartsWith("plan.json: not a memory report: "));
}

TEST_CASE("a plan fits to the byte, and one byte less is refused with the cause") {
  CHECK(plan_line(two_phases(), {}, 5000) == "planned peak 2.9 KiB in optimizer on cpu; 4.9 KiB available");
  CHECK(plan_line(two_phases(), {}, std::nullopt) == "planned peak 2.9 KiB in optimizer on cpu");
  CHECK_FALSE(too_large(two_phases(), {}, budget(3000), 3000));
  const auto over_budget = too_large(two_phases(), {}, budget(2999), 3000);
  REQUIRE(over_budget);
  CHECK(over_budget->limit == 2999);
  CHECK(over_budget->needed == 3000);
  CHECK(over_budget->budget_is_the_limit);
  CHECK(over_budget->message ==
        "the run needs 3000 bytes (2.9 KiB) of tensors on cpu in phase optimizer, and memory.budget is 2999 "
        "(2.9 KiB)");
  const auto over_device = too_large(two_phases(), {}, {}, 2998);
  REQUIRE(over_device);
  CHECK_FALSE(over_device->budget_is_the_limit);
  CHECK(over_device->message ==
        "the run needs 3000 bytes (2.9 KiB) of tensors on cpu in phase optimizer, and what is available is "
        "2998 (2.9 KiB)");
  // A higher budget alone would not do.
  const auto over_both = too_large(two_phases(), {}, budget(2000), 2998);
  REQUIRE(over_both);
  CHECK(over_both->limit == 2000);
  CHECK_FALSE(over_both->budget_is_the_limit);
  CHECK(over_both->message ==
        "the run needs 3000 bytes (2.9 KiB) of tensors on cpu in phase optimizer, and memory.budget is 2000 "
        "(2.0 KiB) and what is available is 2998 (2.9 KiB)");
}

TEST_CASE("what a device adds counts against the limit") {
  const DeviceOverhead beside{.bytes = 20};
  CHECK_FALSE(too_large(two_phases(), beside, budget(3020), 3020));
  const auto over = too_large(two_phases(), beside, budget(3019), std::nullopt);
  REQUIRE(over);
  CHECK(over->needed == 3020);
  CHECK(over->message ==
        "the run needs 3020 bytes (2.9 KiB): 3000 of tensors on cpu in phase optimizer and 20 beside them, "
        "and memory.budget is 3019 (2.9 KiB)");
  CHECK(too_large(two_phases(), beside, {}, 3019));
  CHECK(plan_line(two_phases(), beside, 5000) ==
        "planned peak 2.9 KiB in optimizer on cpu, beside it 20 B; 4.9 KiB available");
  CHECK(beside_in(R"({"plan": {"beside": {"device": 9, "allocator": 7}}})").bytes == 7);
  CHECK(beside_in("{}").bytes == 0);
}

TEST_CASE("what a plan does not know is said beside its peak") {
  const DeviceOverhead scratch =
      beside_in(R"({"plan": {"scratch": {"not_known": ["aten::mm", "aten::bmm"]}}})");
  CHECK(
      plan_line(two_phases(), scratch, 5000) ==
      "planned peak 2.9 KiB in optimizer on cpu; 4.9 KiB available; not known, and counted as 0: scratch of "
      "2 operators (dit-plan --device cpu says more)");
  CHECK(too_large(two_phases(), scratch, budget(2999), std::nullopt)->message ==
        "the run needs at least 3000 bytes (2.9 KiB) of tensors on cpu in phase optimizer, and memory.budget "
        "is "
        "2999 (2.9 KiB); not known, and counted as 0: scratch of 2 operators (dit-plan --device cpu says "
        "more)");
  CHECK(beside_in(R"({"plan": {"scratch": {"not_known": ["aten::mm"]}}})").not_known ==
        "scratch of 1 operator");
  // The scratch of the CPU's kernels is not a device's.
  CHECK(beside_in(R"({"device": "cuda:0", "plan": {"scratch": {"not_known": ["aten::mm"]},
        "device_terms": [{"name": "context", "known": true}, {"name": "convolution_workspaces", "known": false}]
        }})")
            .not_known == "convolution_workspaces");
}

TEST_CASE("categories that differ are shown although their sums agree, and the host's peak on a device") {
  MemoryReport measured = two_phases();
  measured.phases[0].peak = sums({{Category::parameters, "net", 900}, {Category::saved, "net.0", 334}});
  measured.host = {"host", sums({{Category::ema, "shadow", 40}})};
  CHECK(planned_against_measured(two_phases(), measured) ==
        "planned against measured, bytes of tensors on cpu\n"
        "phase         planned  measured  difference\n"
        "forward         1,234     1,234           0\n"
        "  parameters    1,000       900        -100\n"
        "  saved           234       334        +100\n"
        "optimizer       3,000     3,000           0\n"
        "host memory         0        40         +40\n");
}

TEST_CASE("what a device counts has no categories: at its highest the plan's stand alone") {
  MemoryReport measured = two_phases();
  for (policies::PhasePeak& phase : measured.phases) phase.peak = {phase.peak.bytes + 5, {}};
  measured.device = c10::Device("cuda:0");
  CHECK(planned_against_measured(two_phases(), measured) ==
        "planned against measured, bytes of tensors on cuda:0\n"
        "phase         planned  measured  difference\n"
        "forward         1,234     1,239          +5\n"
        "optimizer       3,000     3,005          +5\n"
        "  parameters    1,000         -            \n"
        "  optimizer     2,000         -            \n");
}

TEST_CASE("planned and measured bytes stand side by side, categories where they differ") {
  MemoryReport measured = two_phases();
  measured.phases[0].peak = sums({{Category::parameters, "net", 1000},
                                  {Category::saved, "net.0", 234},
                                  {Category::scratch, "aten::mm", 1234567}});
  measured.phases.push_back({"sample", sums({{Category::parameters, "net", 1000}})});
  CHECK(planned_against_measured(two_phases(), measured) ==
        "planned against measured, bytes of tensors on cpu\n"
        "phase      planned   measured  difference\n"
        "forward      1,234  1,235,801  +1,234,567\n"
        "  scratch        0  1,234,567  +1,234,567\n"
        "optimizer    3,000      3,000           0\n"
        "sample           -      1,000            \n");
}
