#include "toolkit/checkpoint/store.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;
using Names = std::vector<std::string>;

/// A small state that differs for each seed.
CheckpointStore::TensorFiles weights(int64_t seed) {
  return {{"model.safetensors", {{"w", at::arange(6, at::kFloat).reshape({2, 3}) + seed}}},
          {"optimizer.safetensors", {{"m", at::full({4}, seed, at::kDouble)}}}};
}

CheckpointStore::TextFiles state(int64_t seed) {
  return {{"state.json", std::to_string(seed)}};
}

Path save(const Path& folder, int64_t step, int64_t keep = 10) {
  return CheckpointStore(posix_file_system(), folder, keep).save(step, weights(step), state(step));
}

std::optional<Path> latest(const Path& folder) {
  return latest_checkpoint(posix_file_system(), folder);
}

const std::string no_older =
    "No older checkpoint beside it is whole; bring this one back from a copy, or train anew";

std::string open_error(const Path& folder) {
  return test::error_text<FileError>([&] { open_checkpoint(posix_file_system(), folder); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a saved checkpoint opens with what was saved", "[checkpoint]") {
  const test::TemporaryFolder folder;
  const Path saved = save(folder / "run/checkpoints", 1234);
  CHECK(saved == folder / "run/checkpoints/step-00001234");
  CHECK(posix_file_system().list(saved) ==
        Names{"manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"});

  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), saved);
  CHECK(checkpoint.step() == 1234);
  CHECK(checkpoint.folder() == saved);
  CHECK(checkpoint.has("state.json"));
  CHECK_FALSE(checkpoint.has("manifest.json"));
  CHECK(checkpoint.text("state.json") == "1234");
  const std::vector<StoredTensor> tensors = checkpoint.stored_tensors("model.safetensors");
  REQUIRE(tensors.size() == 1);
  CHECK(tensors[0].name == "w");
  CHECK(at::equal(tensors[0].read(), at::arange(6, at::kFloat).reshape({2, 3}) + 1234));
  CHECK_THROWS_WITH(checkpoint.text("ema.safetensors"),
                    "checkpoint " + saved.string() +
                        " has no file \"ema.safetensors\"; it has: model.safetensors, "
                        "optimizer.safetensors, state.json");
}

TEST_CASE("the manifest is this text", "[checkpoint]") {
  const test::TemporaryFolder folder;
  const Path saved = CheckpointStore(posix_file_system(), folder.path(), 1).save(7, {}, {{"a", "abc"}});
  CHECK(posix_file_system().read(saved / "manifest.json") == R"({
 "version": 1,
 "step": 7,
 "files": [
  {
   "name": "a",
   "bytes": 3,
   "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
  }
 ]
}
)");
}

TEST_CASE("the latest checkpoint is the one of the highest step", "[checkpoint]") {
  const test::TemporaryFolder folder;
  CHECK(latest(folder / "absent") == std::nullopt);
  CHECK(latest(folder.path()) == std::nullopt);
  save(folder.path(), 99'999'999);
  const Path newest = save(folder.path(), 100'000'000);  // sorts first as text
  CHECK(newest.filename() == "step-100000000");
  CHECK(latest(folder.path()) == newest);
}

TEST_CASE("folders without a checkpoint's name are not the latest", "[checkpoint]") {
  const test::TemporaryFolder folder;
  const Path good = save(folder.path(), 1);
  for (const char* name :
       {"step-00000006.partial", "step-7", "step--0000008", "step-00000009.old", "step-00000010.damaged"}) {
    std::filesystem::copy(good, folder / name);
    CHECK_FALSE(has_checkpoint_name(folder / name));
  }
  CHECK(has_checkpoint_name(good));
  CHECK(latest(folder.path()) == good);
}

TEST_CASE("a damaged checkpoint is never passed over; the older one is named", "[checkpoint]") {
  const test::TemporaryFolder folder;
  save(folder.path(), 1);
  const Path good = save(folder.path(), 2);
  const Path bad = save(folder.path(), 3);
  const auto error_with = [&](const std::string& problem) {
    CHECK(latest(folder.path()) == bad);
    CHECK(damage_of(posix_file_system(), bad) == std::vector<std::string>{problem});
    CHECK(open_error(bad) == bad.string() + " is a damaged checkpoint:\n  " + problem + "\nName the older " +
                                 good.string() + " instead, which is whole");
  };
  CHECK(damage_of(posix_file_system(), bad).empty());
  folder.write("step-00000003/state.json", "4");
  error_with("state.json has changed since it was saved (its SHA-256 differs)");
  folder.write("step-00000003/state.json", "");
  error_with("state.json has 0 bytes instead of 1");
  posix_file_system().remove_all(bad / "state.json");
  error_with("state.json is missing");
  folder.write("step-00000003/manifest.json", "{");
  error_with((bad / "manifest.json").string() + " is not JSON (at byte 2)");
  posix_file_system().remove_all(bad / "manifest.json");
  error_with("manifest.json is missing");
  posix_file_system().create_directories(bad / "manifest.json");
  error_with("cannot read " + (bad / "manifest.json").string() + ": it is a folder; give a regular file");
}

TEST_CASE("a checkpoint that was set aside is none", "[checkpoint]") {
  const test::TemporaryFolder folder;
  const Path good = save(folder.path(), 2);
  for (const std::string name : {"step-00000003.damaged", "step-00000003.damaged-2"}) {
    const Path bad = save(folder.path(), 3);
    folder.write("step-00000003/state.json", "");
    CHECK(set_aside(posix_file_system(), bad) == folder / name);
    CHECK(latest(folder.path()) == good);
    CHECK_THAT(open_error(folder / name),
               Catch::EndsWith("Name the older " + good.string() + " instead, which is whole"));
  }
  save(folder.path(), 4);
  CHECK(posix_file_system().list(folder.path()) ==
        Names{"step-00000002", "step-00000003.damaged", "step-00000003.damaged-2", "step-00000004"});
}

TEST_CASE("a step that exists is replaced", "[checkpoint]") {
  const test::TemporaryFolder folder;
  CheckpointStore store(posix_file_system(), folder.path(), 2);
  store.save(5, weights(1), {{"state.json", "old"}, {"extra", "x"}});
  const Path saved = store.save(5, weights(2), {{"state.json", "new"}});
  CHECK(posix_file_system().list(folder.path()) == Names{"step-00000005"});
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), saved);
  CHECK(checkpoint.text("state.json") == "new");
  CHECK_FALSE(checkpoint.has("extra"));
}

TEST_CASE("only the newest complete checkpoints are kept", "[checkpoint]") {
  const test::TemporaryFolder folder;
  for (int64_t step = 1; step <= 3; ++step) save(folder.path(), step, 2);
  CHECK(posix_file_system().list(folder.path()) == Names{"step-00000002", "step-00000003"});
  posix_file_system().remove_all(folder / "step-00000003/manifest.json");
  save(folder.path(), 4, 2);
  CHECK(posix_file_system().list(folder.path()) == Names{"step-00000002", "step-00000003", "step-00000004"});
}

TEST_CASE("a save below existing steps does not remove itself", "[checkpoint]") {
  const test::TemporaryFolder folder;
  save(folder.path(), 100);
  save(folder.path(), 200);
  save(folder.path(), 50, 2);
  CHECK(posix_file_system().list(folder.path()) == Names{"step-00000050", "step-00000100", "step-00000200"});
}

TEST_CASE("a save removes what an interrupted one left, and nothing else", "[checkpoint]") {
  const test::TemporaryFolder folder;
  save(folder.path(), 1);
  folder.write("step-00000002.partial/model.safetensors", "half");
  folder.write("notes.partial", "mine");
  folder.write("step-2.partial", "mine");
  save(folder.path(), 3);
  CHECK(posix_file_system().list(folder.path()) ==
        Names{"notes.partial", "step-00000001", "step-00000003", "step-2.partial"});
}

TEST_CASE("a crash between the two renames of a replacement is undone", "[checkpoint]") {
  const test::TemporaryFolder folder;
  const Path saved = save(folder.path(), 5);
  const Path moved = folder / "step-00000005.replaced";
  std::filesystem::rename(saved, moved);
  CHECK(latest(folder.path()) == moved);
  CHECK(open_checkpoint(posix_file_system(), moved).step() == 5);
  save(folder.path(), 6);
  CHECK(posix_file_system().list(folder.path()) == Names{"step-00000005", "step-00000006"});
}

TEST_CASE("what is not a checkpoint is refused with its reason", "[checkpoint]") {
  const test::TemporaryFolder folder;
  const Path saved = save(folder.path(), 3);
  const std::string name = saved.string();
  CHECK(open_error(folder / "absent") ==
        (folder / "absent").string() + " does not exist; no checkpoint to open");
  CHECK(open_error(folder.path()) ==
        folder.path().string() + " is a damaged checkpoint:\n  manifest.json is missing\n" + no_older);

  folder.write("step-00000003/model.safetensors", "short");
  folder.write("step-00000003/state.json", "4");
  posix_file_system().remove_all(saved / "optimizer.safetensors");
  CHECK(open_error(saved) == name +
                                 " is a damaged checkpoint:\n"
                                 "  model.safetensors has 5 bytes instead of 120\n"
                                 "  optimizer.safetensors is missing\n"
                                 "  state.json has changed since it was saved (its SHA-256 differs)\n" +
                                 no_older);
}

TEST_CASE("a single changed bit in a large file is found", "[checkpoint]") {
  const test::TemporaryFolder folder;
  const std::string content(3 * (1 << 20) + 17, 'a');
  const Path saved = CheckpointStore(posix_file_system(), folder.path(), 1).save(1, {}, {{"text", content}});
  CHECK(open_checkpoint(posix_file_system(), saved).text("text") == content);
  for (const size_t at : {size_t{0}, size_t{1} << 20, content.size() - 1}) {
    std::string changed = content;
    changed[at] ^= 1;
    folder.write("step-00000001/text", changed);
    CHECK(open_error(saved) ==
          saved.string() +
              " is a damaged checkpoint:\n  text has changed since it was saved (its SHA-256 differs)\n" +
              no_older);
  }
}

TEST_CASE("a manifest of a newer version is refused, never passed over", "[checkpoint]") {
  const test::TemporaryFolder folder;
  save(folder.path(), 1);
  const Path saved = save(folder.path(), 2);
  const Path manifest = saved / "manifest.json";
  const std::string text = posix_file_system().read(manifest);
  folder.write("step-00000002/manifest.json", replaced(text, "\"version\": 1", "\"version\": 2"));
  const std::string message =
      manifest.string() + " has version 2; this program reads version 1. Use a newer release of it";
  CHECK(open_error(saved) == message);
  CHECK(latest(folder.path()) == saved);
  CHECK_NOTHROW(save(folder.path(), 3));
}

TEST_CASE("damaged and hostile manifests are refused", "[checkpoint]") {
  const test::TemporaryFolder folder;
  const Path saved = CheckpointStore(posix_file_system(), folder.path(), 1).save(7, {}, {{"a", "abc"}});
  const std::string path = (saved / "manifest.json").string();
  const std::string text = posix_file_system().read(path);
  const auto error_with = [&](const std::string& manifest) {
    folder.write("step-00000007/manifest.json", manifest);
    const std::string error = open_error(saved);
    const std::string before = saved.string() + " is a damaged checkpoint:\n  ", after = "\n" + no_older;
    REQUIRE(error.starts_with(before));
    REQUIRE(error.ends_with(after));
    return error.substr(before.size(), error.size() - before.size() - after.size());
  };
  const auto error_after = [&](const std::string& from, const std::string& to) {
    return error_with(replaced(text, from, to));
  };
  const std::string is_none = path + " is not a checkpoint manifest: ";
  CHECK(error_with("") == path + " is not JSON (at byte 1)");
  CHECK(error_with("[]") == is_none + "it is not a JSON object");
  CHECK(error_with("{}") == is_none + "\"version\" is not a whole number from 0");
  CHECK(error_with(R"({"version":1,"version":1})") == path + " has the key \"version\" twice");
  CHECK(error_with("[[[[") == path + " nests deeper than 3 levels");
  CHECK(error_after("\"version\": 1", "\"version\": 0") ==
        is_none + "version 0 was never written; the oldest is 1");
  CHECK(error_after("\"step\": 7", "\"step\": -7") == is_none + "\"step\" is not a whole number from 0");
  CHECK(error_after("\"step\": 7", "\"step\": 9223372036854775808") ==
        is_none + "step 9223372036854775808 is too large");
  CHECK(error_after("\"files\"", "\"file\"") == is_none + "\"files\" is not an array");
  CHECK(error_with(R"({"version":1,"step":7,"files":[3]})") ==
        is_none + "an entry of \"files\" is not an object");
  CHECK(error_after("\"name\": \"a\"", "\"name\": 1") == is_none + "\"name\" is not a string");
  CHECK(error_after("\"name\": \"a\"", "\"name\": \"../a\"") ==
        is_none + "\"../a\" is not a plain file name");
  CHECK(error_after("\"bytes\": 3", "\"bytes\": 3.5") == is_none + "\"bytes\" is not a whole number from 0");
  CHECK(error_after("ba7816", "BA7816") == is_none + "the sha256 of \"a\" is not 64 hexadecimal digits");
  const std::string entry = R"({"name":"a","bytes":0,"sha256":")" + std::string(64, '0') + "\"}";
  CHECK(error_with(R"({"version":1,"step":7,"files":[)" + entry + "," + entry + "]}") ==
        is_none + "\"a\" is listed twice");
}

TEST_CASE("wrong arguments are refused before anything is touched", "[checkpoint]") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_WITH(CheckpointStore(posix_file_system(), folder.path(), 0),
                    "at least 1 checkpoint must be kept, not 0");
  CheckpointStore store(posix_file_system(), folder / "new", 1);
  CHECK_THROWS_WITH(store.save(-1, {}, {}), "a checkpoint's step is at least 0, not -1");
  for (const std::string name : {"", ".", "..", "a/b", "a\\b", "manifest.json"}) {
    CHECK_THROWS_WITH(store.save(1, {}, {{name, ""}}), "\"" + (name == "a\\b" ? "a\\\\b" : name) +
                                                           "\" cannot be the name of a file in a checkpoint");
  }
  CHECK_THROWS_WITH(store.save(1, {{"a", {}}}, {{"a", ""}}), "two files have the name \"a\"");
  CHECK_FALSE(posix_file_system().exists(folder / "new"));
}

TEST_CASE("a tensor that cannot be stored leaves the folder as it was", "[checkpoint]") {
  const test::TemporaryFolder folder;
  const Path good = save(folder.path(), 1);
  CheckpointStore store(posix_file_system(), folder.path(), 1);
  CHECK_THROWS_AS(store.save(2, {{"a", {{"x", at::Tensor()}}}}, {}), std::invalid_argument);
  CHECK(posix_file_system().list(folder.path()) == Names{"step-00000001"});
  CHECK(latest(folder.path()) == good);
}

}  // namespace dtk
