// Checkpoints whose tensors take several files, written by one process or by the ranks of a job.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/util/StringUtil.h>

#include <map>
#include <memory>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/faulty_file_system.h"
#include "support/files/memory_file_system.h"
#include "support/runs/thread_ranks.h"
#include "support/same_bits.h"
#include "toolkit/checkpoint/store.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;
using Names = std::vector<std::string>;
using Contents = std::map<std::string, std::string>;

constexpr uint64_t kFileBytes = 100;
const Path kFolder = "/run/checkpoints", kSaved = kFolder / "step-00000003";

// Of 60, 40 and 80 bytes, and one of 120, which is more than a file may hold.
CheckpointStore::TensorFiles cut_files() {
  return {{"ema.safetensors", {{"w", at::full({4}, 7.0)}}},
          {"model.safetensors",
           {{"a", at::arange(15, at::kFloat)},
            {"b", at::arange(10, at::kFloat)},
            {"c", at::arange(20, at::kFloat)},
            {"d", at::arange(15, at::kDouble)}}}};
}

const CheckpointStore::TextFiles kTexts = {{"state.json", "{}"}};

Contents contents(FileSystem& files, const Path& folder) {
  Contents found;
  for (const std::string& name : files.list(folder)) found[name] = files.read(folder / name);
  return found;
}

std::unique_ptr<test::MemoryFileSystem> saved_by_one() {
  auto files = std::make_unique<test::MemoryFileSystem>();
  CheckpointStore(*files, kFolder, 1, nullptr, kFileBytes).save(3, cut_files(), kTexts);
  return files;
}

// As from a disk of its own: what it writes into the folder of all.
Names written_by(FileSystem& files) {
  const Path partial = kSaved.string() + ".partial";
  return files.list(files.exists(kSaved) ? kSaved : partial);
}

}  // namespace

TEST_CASE("cut files: whole tensors, with a list of what lies where", "[checkpoint]") {
  const auto files = saved_by_one();
  CHECK(files->list(kSaved) == Names{"ema.safetensors", "manifest.json", "model-00001-of-00003.safetensors",
                                     "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                                     "model.safetensors.index.json", "state.json"});
  CHECK(files->read(kSaved / "model.safetensors.index.json") == R"({
 "metadata": {
  "total_size": 300
 },
 "weight_map": {
  "a": "model-00002-of-00003.safetensors",
  "b": "model-00002-of-00003.safetensors",
  "c": "model-00003-of-00003.safetensors",
  "d": "model-00001-of-00003.safetensors"
 }
}
)");
  const Checkpoint checkpoint = open_checkpoint(*files, kSaved);
  CHECK(checkpoint.has_tensors("model.safetensors"));
  CHECK(checkpoint.has_tensors("ema.safetensors"));
  CHECK_FALSE(checkpoint.has("model.safetensors"));
  CHECK_FALSE(checkpoint.has_tensors("optimizer.safetensors"));
  CHECK(checkpoint.paths_of_tensors("ema.safetensors") == std::vector<Path>{kSaved / "ema.safetensors"});
  CHECK(checkpoint.paths_of_tensors("model.safetensors").size() == 4);
  std::map<std::string, at::Tensor> read;
  for (const StoredTensor& one : checkpoint.stored_tensors("model.safetensors")) read[one.name] = one.read();
  CHECK(read.size() == 4);
  CHECK(test::same_bits(read.at("c"), at::arange(20, at::kFloat)));
  CHECK(test::same_bits(read.at("d"), at::arange(15, at::kDouble)));
}

TEST_CASE("cut files: a damaged one is named", "[checkpoint]") {
  const auto files = saved_by_one();
  const Path part = kSaved / "model-00002-of-00003.safetensors";
  std::string content = files->read(part);
  content.back() ^= 1;
  files->create(part)->write(content.data(), content.size());
  CHECK_THAT(test::error_text<FileError>([&] { open_checkpoint(*files, kSaved); }),
             Catch::Contains(
                 "model-00002-of-00003.safetensors has changed since it was saved (its SHA-256 differs)"));
  files->remove_all(part);
  CHECK_THAT(test::error_text<FileError>([&] { open_checkpoint(*files, kSaved); }),
             Catch::Contains("model-00002-of-00003.safetensors is missing"));
}

TEST_CASE("cut files: of several ranks each writes its own, and all are those of one", "[checkpoint]") {
  const Contents alone = contents(*saved_by_one(), kSaved);
  for (const int64_t size : {2, 3, 5}) {
    std::vector<test::MemoryFileSystem> disks(static_cast<size_t>(size));
    for (auto& disk : disks) disk.create_directories(kSaved.string() + ".partial");
    const Names errors = test::as_ranks(size, [&](Ranks& ranks) {
      CheckpointStore store(disks[static_cast<size_t>(ranks.rank())], kFolder, 1, &ranks, kFileBytes);
      if (store.save(3, cut_files(), kTexts) != kSaved) throw FileError("saved elsewhere");
    });
    CHECK(errors == Names(static_cast<size_t>(size)));
    Contents all;
    const Names tensors = {"ema.safetensors", "model-00001-of-00003.safetensors",
                           "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"};
    for (int64_t rank = 0; rank < size; ++rank) {
      test::MemoryFileSystem& disk = disks[static_cast<size_t>(rank)];
      Names own;
      for (size_t i = 0; i < tensors.size(); ++i)
        if (static_cast<int64_t>(i) % size == rank) own.push_back(tensors[i]);
      if (rank == 0) own.insert(own.end(), {"manifest.json", "model.safetensors.index.json", "state.json"});
      std::sort(own.begin(), own.end());
      CHECK(written_by(disk) == own);
      all.merge(contents(disk, rank == 0 ? kSaved : Path(kSaved.string() + ".partial")));
    }
    CHECK(all == alone);
  }
}

TEST_CASE("cut files: each rank compares the hashes of its share", "[checkpoint]") {
  const auto files = saved_by_one();  // the manifest's order: ema, three files of the model, list, state
  std::string content = files->read(kSaved / "model-00001-of-00003.safetensors");
  content.back() ^= 1;
  files->create(kSaved / "model-00001-of-00003.safetensors")->write(content.data(), content.size());
  test::RankBoard board(2);
  const test::ThreadRanks first(board, 0, 2), second(board, 1, 2);
  CHECK_NOTHROW(open_checkpoint(*files, kSaved, &first));
  CHECK_THROWS_AS(open_checkpoint(*files, kSaved, &second), FileError);
}

TEST_CASE("cut files: where one rank fails, the last checkpoint stays and nothing else", "[checkpoint]") {
  for (const int64_t failing : {0, 1, 2}) {
    std::vector<test::MemoryFileSystem> disks(3);
    for (auto& disk : disks) disk.create_directories(kFolder / "step-00000004.partial");
    const auto save = [&](int64_t step, test::Fault fault) {
      return test::as_ranks(3, [&](Ranks& ranks) {
        test::FaultyFileSystem disk(disks[static_cast<size_t>(ranks.rank())],
                                    ranks.rank() == failing ? fault : test::Fault{});
        CheckpointStore(disk, kFolder, 1, &ranks, kFileBytes).save(step, cut_files(), kTexts);
      });
    };
    for (auto& disk : disks) disk.create_directories(kSaved.string() + ".partial");
    REQUIRE(save(3, {}) == Names(3));
    const Contents before = contents(disks[0], kSaved);
    for (auto& disk : disks) disk.create_directories(kFolder / "step-00000004.partial");
    // Of the leader the fourth change is its first write; of the others the second.
    const Names errors = save(4, {.at = failing == 0 ? 4 : 2, .short_write = true});
    INFO(c10::Join("\n", errors));
    CHECK_THAT(errors[static_cast<size_t>(failing)], Catch::Contains("step-00000004.partial/"));
    for (size_t rank = 0; rank < 3; ++rank)
      if (static_cast<int64_t>(rank) != failing) CHECK(errors[rank] == "a rank has left");
    CHECK(disks[0].list(kFolder) == Names{"step-00000003"});
    CHECK(contents(disks[0], kSaved) == before);
  }
}

}  // namespace dtk
