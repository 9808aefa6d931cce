#include <dtk/toolkit/memory_report.h>

#include <sstream>

#include "support/catch.h"

using namespace dtk;
using policies::Category;

namespace {

policies::PhasePeak phase(const std::string& name, const std::vector<std::pair<Category, int64_t>>& parts) {
  policies::PhasePeak peak{name, {}};
  for (const auto& [category, bytes] : parts) {
    const auto owner = policies::owner_id(category, "label of " + std::string(policies::name_of(category)));
    peak.peak.by_owner.resize(std::max<size_t>(peak.peak.by_owner.size(), owner.index + 1));
    peak.peak.by_owner[owner.index] += bytes;
    peak.peak.bytes += bytes;
  }
  return peak;
}

size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

}  // namespace

TEST_CASE("the memory table says in which unit, what is nothing, and where the peak is") {
  MemoryReport report;
  report.device = "cpu";
  report.phases = {phase("build", {{Category::parameters, 5 << 20}}),
                   phase("backward", {{Category::parameters, 5 << 20}, {Category::saved, 10}})};
  CHECK(memory_table(report) ==
        "peak memory by phase, MiB of tensors on cpu\n"
        "phase     peak  params  saved\n"
        "build      5.0     5.0      -\n"
        "backward   5.0     5.0    0.0\n"
        "highest: 5.0 MiB in backward\n"
        "largest saved for backward, by module path:\n"
        "        10 B  label of saved\n");
}

TEST_CASE("the memory table fits a terminal of 80 columns, whatever the sizes") {
  for (const int64_t scale : {int64_t{1}, int64_t{1} << 10, int64_t{1} << 20, int64_t{20} << 20}) {
    MemoryReport report;
    report.device = "cuda:0";
    std::vector<std::pair<Category, int64_t>> parts;
    for (int i = 0; i < policies::kCategories; ++i) parts.emplace_back(static_cast<Category>(i), 97 * scale);
    for (const char* name : {"first_step", "last_batch"}) report.phases.push_back(phase(name, parts));
    INFO(memory_table(report));
    CHECK(widest_line(memory_table(report)) < 80);
  }
}

TEST_CASE("the table of savings breaks long reasons at 80 columns") {
  const std::string reason =
      "training device is the CPU, nothing to move; fp32 average of 51 tensors on cpu, decay 0.995 with "
      "warm-up";
  const std::string table = savings_table(
      {{{"ema", true, reason}, 0, ""}, {{"checkpoint", true, std::string(90, 'x')}, -2048, "a note"}});
  CHECK(table ==
        "by how much each policy lowers the peak of a step (measured by leaving it out)\n"
        "  ema         on          0 B   training device is the CPU, nothing to move;\n"
        "                                fp32 average of 51 tensors on cpu, decay 0.995\n"
        "                                with warm-up\n"
        "  checkpoint  on     -2.0 KiB   raises the peak here; a note;\n"
        "                                " +
            std::string(90, 'x') + "\n");
  CHECK(widest_line(savings_table({{{"ema", true, reason}, 0, ""}})) < 80);
}
