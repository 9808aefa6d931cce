// Saving while every single change of the disk fails in turn, in several ways to fail.
#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/files/faulty_file_system.h"
#include "support/files/memory_file_system.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

const Path run_folder = "/runs/a";
const Path checkpoints = run_folder / "checkpoints";

CheckpointStore::TensorFiles tensors_of(int64_t seed) {
  return {{"ema.safetensors", {{"w", at::full({7}, 0.1 * static_cast<double>(seed), at::kFloat)}}},
          {"model.safetensors",
           {{"w", at::arange(7, at::kFloat) + seed}, {"b", at::full({3}, seed, at::kBFloat16)}}}};
}

void save(FileSystem& files, int64_t step, int64_t seed) {
  CheckpointStore(files, checkpoints, 2).save(step, tensors_of(seed), {{"state.json", std::to_string(seed)}});
}

/// Seed of the latest checkpoint, all of whose tensors are checked to be bit-equal to what was saved.
int64_t latest_seed(FileSystem& files) {
  const std::optional<Path> latest = latest_checkpoint(files, checkpoints);
  REQUIRE(latest.has_value());
  const Checkpoint checkpoint = open_checkpoint(files, *latest);
  const int64_t seed = std::stoll(checkpoint.text("state.json"));
  for (const auto& [file, expected] : tensors_of(seed)) {
    const std::vector<StoredTensor> read = checkpoint.stored_tensors(file);
    REQUIRE(read.size() == expected.size());
    for (const WrittenTensor& want : expected) {
      at::Tensor values;
      want.give([&](const at::Tensor& all) { values = all; });
      bool found = false;
      for (const StoredTensor& have : read) {
        found = found || (have.name == want.name && have.type == want.type && at::equal(have.read(), values));
      }
      CHECK(found);
    }
  }
  return seed;
}

struct Case {
  const char* name;
  std::vector<int64_t> steps_before;
  int64_t step;
};

struct Failure {
  const char* name;
  bool is_final;
  bool short_write;
  bool loses_power;
};

constexpr int64_t new_seed = 1000;
constexpr int64_t later_seed = 2000;
const Failure failures[] = {{"one change fails", false, false, false},
                            {"one write is cut short", false, true, false},
                            {"one change fails, then the power goes", false, false, true},
                            {"the process dies", true, true, false},
                            {"the power goes", true, true, true}};
const Case cases[] = {{"a new step", {10}, 20},
                      {"a new step that pushes out an old one", {10, 20}, 30},
                      {"the same step again", {10, 20}, 20}};

/// Saves with change `at` failing; whether it did.
bool save_with_fault(test::MemoryFileSystem& memory, const Case& scenario, const Failure& failure,
                     int64_t at) {
  memory.create_directories(run_folder);
  memory.sync_directory("/");
  memory.sync_directory("/runs");
  for (const int64_t step : scenario.steps_before) save(memory, step, step);
  memory.lose_power();  // nothing may depend on what earlier saves left unsynced
  test::FaultyFileSystem faulty(memory, {at, failure.is_final, failure.short_write});
  bool failed = false;
  try {
    save(faulty, scenario.step, new_seed);
  } catch (const FileError& error) {
    failed = true;
    CHECK_THAT(error.what(), Catch::Matchers::EndsWith(": No space left on device"));
  }
  CHECK(failed == faulty.has_failed());
  if (failure.loses_power) memory.lose_power();
  return failed;
}

}  // namespace

TEST_CASE("whatever change of a save fails, a whole checkpoint is the latest", "[checkpoint]") {
  for (const Failure& failure : failures) {
    for (const Case& scenario : cases) {
      bool is_new = false;
      int64_t failed_before = 0;
      int64_t failed_after = 0;
      for (int64_t at = 1;; ++at) {
        INFO(scenario.name << ", " << failure.name << ", change " << at);
        test::MemoryFileSystem memory;
        const bool failed = save_with_fault(memory, scenario, failure, at);
        const int64_t seed = latest_seed(memory);
        // Up to some change the previous one is the latest, from there on the new one.
        const bool was_new = is_new;
        is_new = seed == new_seed;
        CHECK((is_new || (!was_new && seed == scenario.steps_before.back())));
        if (!failed) CHECK(is_new);
        (is_new ? failed_after : failed_before) += failed;

        save(memory, 40, later_seed);
        CHECK(latest_seed(memory) == later_seed);
        for (const std::string& name : memory.list(checkpoints)) {
          CHECK(name.size() == std::string("step-00000040").size());  // no .partial, no .replaced
        }
        if (!failed) break;
      }
      // Four files of create, write, sync, close at least, the folder, its sync and the rename.
      CHECK(failed_before >= 4 * 4 + 3);
      CHECK(failed_after <= 4);
    }
  }
}

TEST_CASE("a save makes exactly these changes", "[checkpoint]") {
  // Per file create, sync, close and its writes: 4 of a tensor file (length, header, tensors) or 3, 1 of
  // text.
  constexpr int64_t files = (3 + 3) + (3 + 4) + (3 + 1) + (3 + 1);
  constexpr int64_t plain =
      1 + files + 1 + 1 + 1;                // folder, files, its sync, rename, sync of the folder above
  constexpr int64_t replacing = plain + 3;  // rename of the old one, sync, removal
  constexpr int64_t removing = plain + 2;   // rename of the oldest, removal
  const auto changes_of = [](const Case& scenario) {
    test::MemoryFileSystem memory;
    for (const int64_t step : scenario.steps_before) save(memory, step, step);
    test::FaultyFileSystem counting(memory, {});
    save(counting, scenario.step, new_seed);
    return counting.changes();
  };
  CHECK(changes_of(cases[0]) == plain);
  CHECK(changes_of(cases[1]) == removing);
  CHECK(changes_of(cases[2]) == replacing);
}

TEST_CASE("the first save of a run either is there or is not", "[checkpoint]") {
  for (const Failure& failure : failures) {
    const Case scenario = {"the first", {}, 10};
    for (int64_t at = 1;; ++at) {
      INFO(failure.name << ", change " << at);
      test::MemoryFileSystem memory;
      const bool failed = save_with_fault(memory, scenario, failure, at);
      if (latest_checkpoint(memory, checkpoints)) CHECK(latest_seed(memory) == new_seed);
      if (!failed) CHECK(latest_seed(memory) == new_seed);
      save(memory, 40, later_seed);
      CHECK(latest_seed(memory) == later_seed);
      if (!failed) break;
    }
  }
}

TEST_CASE("a save that fails gives the space back at once", "[checkpoint]") {
  test::MemoryFileSystem memory;
  const Case scenario = {"a new step", {10}, 20};
  REQUIRE(save_with_fault(memory, scenario, {"one write is cut short", false, true, false}, 9));
  CHECK(memory.list(checkpoints) == std::vector<std::string>{"step-00000010"});
}

}  // namespace dtk
