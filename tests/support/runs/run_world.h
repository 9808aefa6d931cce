// All that a run needs of the world, for a test: files in memory, a clock that does as it is told, and a
// listener that remembers.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/files/memory_file_system.h"
#include "support/runs/image_run.h"
#include "support/runs/tiny_run.h"
#include "toolkit/checkpoint/find.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/run/run.h"

namespace dtk::test {

struct Listener final : RunObserver {
  void message(const std::string& text) override { messages.push_back(text); }
  void progress(const Progress& progress) override { last = progress; }
  void working(const std::string& what, int64_t done, int64_t all) override {
    if (what == "sampling") sampler_steps.push_back(std::to_string(done + 1) + "/" + std::to_string(all));
  }
  void finished(const RunResult& result) override {
    finished_at_step = result.step;
    finished_with_savings = !result.savings.empty();
  }
  bool heard(const std::string& text) const {
    return std::find(messages.begin(), messages.end(), text) != messages.end();
  }
  std::vector<std::string> messages, sampler_steps;
  Progress last;
  int64_t finished_at_step = -1;
  bool finished_with_savings = false;
};

inline LoadedConfig tiny(const std::string& out) {
  LoadedConfig loaded;
  loaded.config = tiny_config();
  dit::options_of(loaded.config).data.images = "made up";
  dit::options_of(loaded.config).data.labels = "made up";
  loaded.config.train.out = out;
  loaded.config.train.checkpoint_every = 8;
  loaded.config.policies.precision.cpu = policies::CpuPrecision::fp32;  // precision_choice_test.cpp measures
  return loaded;
}

struct World {
  RunResult run(const LoadedConfig& loaded, const std::string& resume = "", FileSystem* other = nullptr) {
    FileSystem& disk = other != nullptr ? *other : files;
    const auto from =
        resume.empty() ? std::filesystem::path() : find_checkpoint(disk, resume, loaded.config.train.out);
    return run_training(loaded, at::kCPU, from, images_of(loaded, data), {disk, clock, listener, stop});
  }
  MemoryFileSystem files;
  SteppingClock clock{0.001};
  Listener listener;
  std::function<bool()> stop = [] { return false; };
  std::shared_ptr<const ImageSource> data = tiny_data();
};

}  // namespace dtk::test
