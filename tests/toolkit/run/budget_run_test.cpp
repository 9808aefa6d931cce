// The batch that largest_batch finds is the largest for the program, too: dit-train trains it within the
// budget and ends with exit code 3 at the next one.
#include <dtk/policies/guards.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/files/temporary_folder.h"
#include "support/runs/largest_batch.h"
#include "toolkit/config/config_io.h"
#include "toolkit/families/dit/data.h"
#include "toolkit/io/file_system.h"

using namespace dtk;

namespace {

constexpr int64_t kBudget = 12'000'000;
constexpr int kImages = 256, kSide = 16;

std::string big_endian(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFF);
  return text;
}

std::string images() {
  std::string text = big_endian(0x803) + big_endian(kImages) + big_endian(kSide) + big_endian(kSide);
  for (int i = 0; i < kImages * kSide * kSide; ++i) text += static_cast<char>(i * 37 % 256);
  return text;
}

std::string labels() {
  std::string text = big_endian(0x801) + big_endian(kImages);
  for (int i = 0; i < kImages; ++i) text += static_cast<char>(i % 4);
  return text;
}

/// Two blocks over 64 tokens; as many steps as let the loader be ahead in some of them.
std::string config_text(const test::TemporaryFolder& folder) {
  return "[train]\nout = \"" + (folder / "run").string() +
         "\"\nsteps = 12\nthreads = 1\n"
         "[data]\nimages = \"" +
         (folder / "images").string() + "\"\nlabels = \"" + (folder / "labels").string() +
         "\"\nbatch = 1\nprefetch = 1\n"
         "[model]\ndepth = 2\nhidden = 64\nheads = 4\npatch = 2\nimage_size = 16\nchannels = 1\nclasses = 4\n"
         "learn_sigma = false\n"
         "[sample]\nper_class = 0\n"
         "[memory]\nbudget = " +
         std::to_string(kBudget) + "\n";
}

struct Ended {
  int code;
  std::string error;
};

class Program {
 public:
  Program() {
    folder_.write("images", images());
    folder_.write("labels", labels());
    config_ = folder_.write("config.toml", config_text(folder_));
  }

  LargestBatch search(const std::vector<std::string>& set) const {
    const policies::ThreadCountGuard one(1);
    const LoadedConfig loaded = load_config(posix_file_system(), config_, set);
    return largest_batch(loaded.config, dit::open_data(loaded));
  }

  Ended train(std::vector<std::string> set, int64_t batch) const {
    const std::filesystem::path error = folder_ / "error";
    set.push_back("data.batch=" + std::to_string(batch));
    set.push_back("train.out=" + (folder_ / ("run-" + std::to_string(batch))).string());
    std::string command =
        "OMP_NUM_THREADS=1 '" DTK_BINARY_DIR "/dit-train' --device cpu --config " + config_.string();
    for (const std::string& one : set) command += " --set '" + one + "'";
    const int status = std::system((command + " > /dev/null 2> " + error.string()).c_str());
    std::ostringstream text;
    text << std::ifstream(error).rdbuf();
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text.str()};
  }

 private:
  test::TemporaryFolder folder_;
  std::filesystem::path config_;
};

}  // namespace

TEST_CASE("dit-train trains the largest batch that was found, and ends with exit code 3 at the next one") {
  const bool with_policies = GENERATE(false, true);
  const std::string state = with_policies ? "true" : "false";
  std::vector<std::string> set = {"policies.precision.enabled=" + state,
                                  "policies.attention.enabled=" + state,
                                  "policies.checkpoint.enabled=" + state, "policies.ema.device=same"};
  CAPTURE(with_policies);
  const Program program;
  const LargestBatch found = program.search(set);
  CAPTURE(found.batch, found.peak_bytes);
  REQUIRE(found.next_batch == found.batch + 1);
  // The steps of a run may differ by a scalar or two from the step of the search.
  REQUIRE(kBudget - found.peak_bytes > 4096);
  const Ended fits = program.train(set, found.batch), planned = program.train(set, found.next_batch);
  CHECK(fits.error == "");
  CHECK(fits.code == 0);
  CHECK(planned.code == 3);
  if (!with_policies) {  // bf16 kernels take memory for themselves that no plan knows, a part of the budget
    CHECK_THAT(planned.error, Catch::StartsWith("dit-train: the run needs ") &&
                                  Catch::Contains("memory.budget is " + std::to_string(kBudget)));
  }
  set.push_back("memory.on_over_budget=warn");
  const Ended next = program.train(set, found.next_batch);
  CHECK(next.code == 3);
  CHECK_THAT(next.error, Catch::StartsWith("dit-train: memory budget of " + std::to_string(kBudget) +
                                           " bytes exceeded: "));
}
