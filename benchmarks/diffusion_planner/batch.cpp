// The largest batch of the driving model within a memory budget on this CPU, without and with the policies,
// found by running steps, and what a sample then costs in time.
#include <ATen/Parallel.h>
#include <dtk/policies/saved_tensors.h>

#include <cstdio>
#include <cxxopts.hpp>
#include <optional>
#include <stdexcept>

#include "support/bench_setup.h"
#include "support/runs/largest_batch.h"
#include "toolkit/core/numbers.h"
#include "toolkit/families/diffusion_planner/frame_source.h"
#include "toolkit/io/file_system.h"
#include "toolkit/report/memory_report.h"
#include "toolkit/train/precision_choice.h"
#include "toolkit/train/trainer.h"

namespace {

using namespace dtk;

constexpr double kMinRatio = 5, kMaxTime = 1.35;

LoadedConfig job_of(const std::string& config, const std::string& frames) {
  LoadedConfig loaded = load_config(
      posix_file_system(), config,
      {"data.frames=\"" + frames + "\"", "data.held_out=default", "train.validate_every=0", "sample.frames=0",
       "data.batch=1", "memory.budget=default", "train.threads=" + std::to_string(at::get_num_threads())});
  SteadyClock clock;
  const std::string decision = decide_precision(loaded, c10::Device(c10::kCPU), clock, nullptr);
  std::fprintf(stderr, "%s\n", decision.c_str());
  return loaded;
}

// Off: fp32, stored attention weights, the average on the training device, nothing recomputed.
RunConfig with_policies(RunConfig config, bool on) {
  if (!on) config.policies = bench::options_of({}, config.policies);
  return config;
}

LargestBatch search(RunConfig config, const std::shared_ptr<const DataSource>& frames, int64_t budget) {
  config.memory.budget = ByteSize{budget};
  return largest_batch(config, frames, [](int64_t batch, int64_t peak) {
    std::fprintf(stderr, "  batch %lld: %s\n", static_cast<long long>(batch),
                 peak > 0 ? readable_bytes(peak).c_str() : "exceeds the budget");
  });
}

// Steps of one choice of policies at its largest batch.
class Training {
 public:
  Training(RunConfig config, int64_t batch, const std::shared_ptr<const DataSource>& frames) : batch_(batch) {
    config.data.batch = batch;
    trainer_.emplace(config, c10::Device(c10::kCPU), frames, clock_);
  }
  double milliseconds_a_sample() {
    trainer_->wait_for_data();
    const double begin = clock_.seconds();
    trainer_->step();
    return (clock_.seconds() - begin) * 1e3 / static_cast<double>(batch_);
  }

 private:
  const int64_t batch_;
  SteadyClock clock_;
  std::optional<Trainer> trainer_;
};

void run(const std::string& config, const std::string& folder, int64_t budget, int64_t pairs) {
  const policies::SavedTensorEngineGuard engine;
  const LoadedConfig loaded = job_of(config, folder);
  const std::shared_ptr<const DataSource> frames = diffusion_planner::open_frames(loaded).all;
  const RunConfig off = with_policies(loaded.config, false), on = with_policies(loaded.config, true);
  const LargestBatch none = search(off, frames, budget), all = search(on, frames, budget);
  if (none.batch == 0 || all.next_batch == 0)
    throw std::runtime_error("nothing fits, or the frames ended the search; change --gb or --frames");
  Training without(off, none.batch, frames), with(on, all.batch, frames);
  without.milliseconds_a_sample(), with.milliseconds_a_sample();  // first steps
  std::vector<double> plain, saving, ratios;
  for (int64_t i = 0; i < pairs; ++i) {
    plain.push_back(without.milliseconds_a_sample());
    saving.push_back(with.milliseconds_a_sample());
    ratios.push_back(saving.back() / plain.back());
  }
  const auto row = [](const char* name, const LargestBatch& found, const std::vector<double>& times) {
    std::printf("| %s | %lld | %s | %lld exceeds it | %.0f |\n", name, static_cast<long long>(found.batch),
                readable_bytes(found.peak_bytes).c_str(), static_cast<long long>(found.next_batch),
                bench::median(times));
  };
  std::printf(
      "%s, AdamW and EMA included, cpu, %d threads, budget %s\n\n"
      "| policies | largest batch | peak | next | ms a sample |\n|---|---:|---:|---|---:|\n",
      config.substr(config.rfind('/') + 1).c_str(), at::get_num_threads(), readable_bytes(budget).c_str());
  row("none", none, plain);
  row("all", all, saving);
  const double batches = static_cast<double>(all.batch) / static_cast<double>(none.batch);
  const double times = bench::median(ratios);
  std::printf(
      "\nbatch %.1f times as large, at %.3f times the time a sample (median of %lld pairs, %.3f to %.3f)\n",
      batches, times, static_cast<long long>(pairs), *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()));
  if (batches < kMinRatio || times > kMaxTime)
    throw std::runtime_error("wanted: a batch 5 times as large, at 1.35 times the time a sample or less");
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options(
      "diffusion-planner-batch",
      "The largest batch of the driving model within a budget, without and with the policies");
  options.add_options()("config", "", cxxopts::value<std::string>())("frames", "a folder or a list",
                                                                     cxxopts::value<std::string>())(
      "gb", "the budget, in 1e9 bytes", cxxopts::value<int64_t>()->default_value("4"))(
      "pairs", "of steps that are timed", cxxopts::value<int64_t>()->default_value("7"));
  return bench::main_of("diffusion-planner-batch", options, argc, argv,
                        [](const cxxopts::ParseResult& parsed) {
                          run(parsed["config"].as<std::string>(), parsed["frames"].as<std::string>(),
                              parsed["gb"].as<int64_t>() * 1'000'000'000, parsed["pairs"].as<int64_t>());
                        });
}
