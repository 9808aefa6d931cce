#include "toolkit/checkpoint/find.h"

#include <ATen/ATen.h>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/memory_file_system.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

/// A run folder `runs/a` with checkpoints of the given steps.
struct RunWith {
  explicit RunWith(const std::vector<int64_t>& steps) {
    files.create_directories("runs/a/checkpoints");
    CheckpointStore store(files, "runs/a/checkpoints", 100);
    for (const int64_t step : steps) store.save(step, {{"w.safetensors", {{"w", at::zeros({1})}}}}, {});
    files.create("runs/a/config.toml")->write("", 0);
  }

  std::string found(const std::string& given) { return find_checkpoint(files, given, "runs/a").string(); }
  std::string refused(const std::string& given) {
    return test::error_text<ConfigError>([&] { found(given); });
  }

  test::MemoryFileSystem files;
};

const std::string what_to_do = "; name a run folder or a checkpoint folder, or start anew without --resume";

}  // namespace

TEST_CASE("a name alone is looked for in the folder at hand") {
  test::MemoryFileSystem files;
  CheckpointStore store(files, ".", 100);
  for (const int64_t step : {3, 4}) store.save(step, {{"w.safetensors", {{"w", at::zeros({1})}}}}, {});
  CHECK(checkpoint_in(files, "step-3")->string() == "./step-00000003");
  CHECK(why_no_checkpoint(files, "step-7") ==
        "no such checkpoint in this folder, which has step-00000003 and step-00000004");
}

TEST_CASE("a checkpoint is named by its folder, its run, its run's checkpoints or its step") {
  RunWith run({9, 20, 123456789});
  const std::string first = "runs/a/checkpoints/step-00000009", last = "runs/a/checkpoints/step-123456789";
  for (const char* given : {"latest", "runs/a", "runs/a/", "runs/a/checkpoints", "runs/a/checkpoints/"}) {
    INFO(given);
    CHECK(run.found(given) == last);
  }
  for (const char* given :
       {"runs/a/checkpoints/step-00000009", "runs/a/checkpoints/step-00000009/", "runs/a/checkpoints/step-9",
        "runs/a/checkpoints/step-0009", "runs/a/step-9", "runs/a/step-9/", "runs/a/step-00000009"}) {
    INFO(given);
    CHECK(run.found(given) == first);
  }
}

TEST_CASE("a step stands for a checkpoint only where nothing else has its path") {
  RunWith run({9});
  run.files.create_directories("runs/a/step-9/notes");
  CHECK(run.refused("runs/a/step-9") ==
        "--resume runs/a/step-9: no complete checkpoint in runs/a/step-9/checkpoints" + what_to_do);
  // A run may have such a name.
  CheckpointStore(run.files, "runs/a/step-9/checkpoints", 1).save(3, {}, {{"state.json", ""}});
  CHECK(run.found("runs/a/step-9") == "runs/a/step-9/checkpoints/step-00000003");
}

TEST_CASE("a path without a checkpoint is refused with what is there") {
  RunWith run({9, 20, 30, 40});
  const std::string others =
      "no such checkpoint in runs/a/checkpoints, which has step-00000020, step-00000030, step-00000040 and 1 "
      "older";
  for (const std::string given : {"runs/a/step-10", "runs/a/checkpoints/step-00000010"})
    CHECK(run.refused(given) == "--resume " + given + ": " + others + what_to_do);
  const std::string file = "runs/a/config.toml";
  CHECK(run.refused(file) == "--resume " + file + ": a file, and a checkpoint is a folder" + what_to_do);
  const std::string below = file + "/step-9", nowhere = "runs/b/step-9";
  for (const std::string& given : {below, nowhere})
    CHECK(run.refused(given) ==
          "--resume " + given + ": no such folder, and no checkpoint beside it" + what_to_do);
  for (const std::string given : {"runs/b", "runs/a/step-x", "runs/a/step--9", "runs/a/step-9.partial",
                                  "runs/a/step-99999999999999999999"})
    CHECK(run.refused(given) ==
          "--resume " + given + ": no complete checkpoint in " + given + "/checkpoints" + what_to_do);

  RunWith none({});
  for (const std::string given : {"runs/a/checkpoints", "runs/a/checkpoints/"})
    CHECK(none.refused(given) ==
          "--resume " + given + ": no complete checkpoint in runs/a/checkpoints" + what_to_do);
  CHECK(none.refused("latest") ==
        "--resume latest: no complete checkpoint in runs/a/checkpoints" + what_to_do);
}

}  // namespace dtk
