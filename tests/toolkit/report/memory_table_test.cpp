// The memory table at the end of a run, to the letter: its rows, and the lists below them.
#include <dtk/policies/memory_accounts.h>

#include <algorithm>
#include <sstream>

#include "support/catch.h"
#include "toolkit/report/memory_report.h"

using namespace dtk;
using policies::Category;
using policies::MemorySums;
using policies::PhasePeak;

namespace {

constexpr int64_t kMiB = 1 << 20;

struct Entry {
  Category category;
  const char* label;
  int64_t bytes;
};

PhasePeak phase(const char* name, const std::vector<Entry>& entries) {
  MemorySums sums;
  for (const Entry& entry : entries) {
    const uint32_t index = policies::owner_id(entry.category, entry.label).index;
    if (index >= sums.by_owner.size()) sums.by_owner.resize(index + 1, 0);
    sums.by_owner[index] += entry.bytes;
    sums.bytes += entry.bytes;
  }
  return {name, sums};
}

// Six modules save for backward; the highest peak is in sampling, where nothing is saved.
MemoryReport report() {
  MemoryReport report;
  report.device = c10::kCPU;
  report.phases = {
      phase("build", {{Category::parameters, "model", 2 * kMiB}}),
      phase("first_step",
            {{Category::parameters, "model", 2 * kMiB}, {Category::saved, "blocks.0", 3 * kMiB}}),
      phase("backward", {{Category::parameters, "model", 2 * kMiB},
                         {Category::gradients, "model", kMiB},
                         {Category::saved, "blocks.2", kMiB},
                         {Category::saved, "blocks.0", 4 * kMiB},
                         {Category::saved, "blocks.1", kMiB},
                         {Category::saved, "final_layer", 512},
                         {Category::saved, "x_embedder", 1536},
                         {Category::saved, "", 1024},
                         {Category::temporaries, "aten::mul", 3 * kMiB / 2}}),
      phase("sample", {{Category::parameters, "model", 2 * kMiB},
                       {Category::temporaries, "aten::addmm", 16 * kMiB},
                       {Category::temporaries, "aten::gelu", 256},
                       {Category::temporaries, "aten::mul", 768},
                       {Category::temporaries, "aten::add", 32}}),
  };
  return report;
}

size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

}  // namespace

TEST_CASE("memory table: a row a phase, a column a category in use") {
  const std::string table = memory_table(report());
  CHECK(table.substr(0, table.find("highest: ")) ==
        "peak memory by phase, MiB of tensors on cpu\n"
        "phase       peak  params  grads  saved  temps\n"
        "build        2.0     2.0      0      0      0\n"
        "first_step   5.0     2.0      0    3.0      0\n"
        "backward    10.5     2.0    1.0    6.0    1.5\n"
        "sample      18.0     2.0      0      0   16.0\n");
}

TEST_CASE("memory table: <0.1 is little, and 0 is nothing") {
  MemoryReport report;
  report.device = c10::kCPU;
  report.phases = {phase("forward", {{Category::parameters, "model", 5 * kMiB}}),
                   phase("save", {{Category::parameters, "model", 5 * kMiB}, {Category::data, "batch", 10}})};
  const std::string table = memory_table(report);
  CHECK(table.substr(0, table.find("highest: ")) ==
        "peak memory by phase, MiB of tensors on cpu\n"
        "phase    peak  params  data\n"
        "forward   5.0     5.0     0\n"
        "save      5.0     5.0  <0.1\n");
}

TEST_CASE("memory table: it fits a terminal of 80 columns, whatever the sizes") {
  for (const int64_t scale : {int64_t{1}, int64_t{1} << 10, kMiB, 20 * kMiB}) {
    std::vector<Entry> entries;
    for (int i = 0; i < policies::kCategories; ++i) {
      const auto category = static_cast<Category>(i);
      if (category != Category::offloaded)  // only host memory has it, whose peak is a line
        entries.push_back({category, "label", 97 * scale});
    }
    MemoryReport report;
    report.device = c10::Device("cuda:0");
    report.phases = {phase("first_step", entries), phase("last_batch", entries)};
    INFO(memory_table(report));
    CHECK(widest_line(memory_table(report)) < 80);
  }
}

TEST_CASE("savings table: long reasons break before 80 columns") {
  const std::string reason =
      "training device is the CPU, nothing to move; fp32 average of 51 tensors on cpu, decay 0.995 with "
      "warm-up";
  const std::string table = savings_table(
      {{{"ema", true, reason}, 0, ""}, {{"checkpoint", true, std::string(90, 'x')}, -2048, "a note"}});
  CHECK(table ==
        "by how much each policy lowers the peak of forward and backward\n"
        "  ema         on          0 B   training device is the CPU, nothing to move;\n"
        "                                fp32 average of 51 tensors on cpu, decay 0.995\n"
        "                                with warm-up\n"
        "  checkpoint  on     -2.0 KiB   raises the peak here; a note;\n"
        "                                " +
            std::string(90, 'x') + "\n");
}

TEST_CASE("memory table: what was saved is listed where most is saved, temporaries at the highest peak") {
  const std::string table = memory_table(report());
  CHECK(table.substr(table.find("highest: ")) ==
        "highest: 18.0 MiB in sample\n"
        "largest saved for backward, by module path, at the peak of backward:\n"
        "     4.0 MiB  blocks.0\n"
        "     1.0 MiB  blocks.1\n"
        "     1.0 MiB  blocks.2\n"
        "     1.5 KiB  x_embedder\n"
        "     1.0 KiB  (outside of any)\n"
        "largest temporaries, by operator, in sample:\n"
        "    16.0 MiB  aten::addmm\n"
        "       768 B  aten::mul\n"
        "       256 B  aten::gelu\n");
}

TEST_CASE(
    "memory table: a run that saved nothing lists nothing; the host has a line where it holds something") {
  MemoryReport few;
  few.device = c10::Device("cuda:0");
  few.phases = {phase("build", {{Category::parameters, "model", 3 * kMiB}})};
  few.host = phase("build", {{Category::ema, "shadow", 5 * kMiB / 2}});
  const std::string table = memory_table(few);
  CHECK(table.substr(table.find("highest: ")) == "highest: 3.0 MiB in build\nhost: 2.5 MiB of CPU tensors\n");
}

TEST_CASE("memory table: of phases that save as much the first is taken") {
  MemoryReport equal;
  equal.device = c10::kCPU;
  equal.phases = {phase("forward", {{Category::saved, "a", kMiB}}),
                  phase("backward", {{Category::saved, "b", kMiB}, {Category::data, "batch", 1}})};
  CHECK_THAT(memory_table(equal),
             Catch::Contains(
                 "largest saved for backward, by module path, at the peak of forward:\n     1.0 MiB  a\n"));
}
