// The memory table at the end of a run, to the letter: its rows, and the lists below them.
#include <dtk/policies/memory_accounts.h>
#include <dtk/toolkit/memory_report.h>

#include "support/catch.h"

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

// Six sub-trees save for backward; the highest peak is in sampling, where nothing is saved.
MemoryReport report() {
  MemoryReport report;
  report.device = "cpu";
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

}  // namespace

TEST_CASE("memory table: a row a phase, a column a category in use") {
  const std::string table = memory_table(report());
  CHECK(table.substr(0, table.find("highest: ")) ==
        "peak memory by phase, MiB of tensors on cpu\n"
        "  phase          peak   parameters    gradients        saved  temporaries\n"
        "  build           2.0          2.0          0.0          0.0          0.0\n"
        "  first_step      5.0          2.0          0.0          3.0          0.0\n"
        "  backward       10.5          2.0          1.0          6.0          1.5\n"
        "  sample         18.0          2.0          0.0          0.0         16.0\n");
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
  few.device = "cuda:0";
  few.phases = {phase("build", {{Category::parameters, "model", 3 * kMiB}})};
  few.host = phase("build", {{Category::ema, "shadow", 5 * kMiB / 2}});
  const std::string table = memory_table(few);
  CHECK(table.substr(table.find("highest: ")) == "highest: 3.0 MiB in build\nhost: 2.5 MiB of CPU tensors\n");
}

TEST_CASE("memory table: of phases that save as much the first is taken") {
  MemoryReport equal;
  equal.device = "cpu";
  equal.phases = {phase("forward", {{Category::saved, "a", kMiB}}),
                  phase("backward", {{Category::saved, "b", kMiB}, {Category::data, "batch", 1}})};
  CHECK_THAT(memory_table(equal),
             Catch::Contains(
                 "largest saved for backward, by module path, at the peak of forward:\n     1.0 MiB  a\n"));
}
