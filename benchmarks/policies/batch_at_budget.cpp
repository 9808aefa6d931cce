// The largest batch within a memory budget without and with the policies, found by running steps.
#include <ATen/Parallel.h>
#include <dtk/policies/saved_tensors.h>

#include <cstdio>
#include <cxxopts.hpp>
#include <stdexcept>

#include "support/bench_setup.h"
#include "support/runs/largest_batch.h"
#include "toolkit/core/numbers.h"
#include "toolkit/report/memory_report.h"
#include "toolkit/train/precision_choice.h"

namespace {

using namespace dtk;

LargestBatch search(RunConfig config, const bench::Combination& on, int64_t budget, bool verbose) {
  config.policies = bench::options_of(on, config.policies);
  config.memory.budget = ByteSize{budget};
  return largest_batch(config, bench::latent_data(config, 4096), [&](int64_t batch, int64_t peak) {
    if (!verbose) return;
    std::fprintf(stderr, "  batch %lld: %s\n", static_cast<long long>(batch),
                 peak > 0 ? readable_bytes(peak).c_str() : "exceeds the budget");
  });
}

std::string size_text(int64_t bytes, bool plain) {
  return plain ? std::to_string(bytes) : readable_bytes(bytes);
}

// What shows that the batch found is the largest.
std::string next_text(const LargestBatch& found) {
  return found.next_batch > 0 ? std::to_string(found.next_batch) + " exceeds the budget"
                              : "none: the data set ends";
}

// What the four policies are worth at the least: the bound that this benchmark checks.
struct MinRatio {
  const char* model;
  double ratio;
};
constexpr MinRatio kMin{"DiT-S/2", 4};

struct Arguments {
  std::vector<std::string> models;
  std::vector<int64_t> gigabytes;
  policies::CpuPrecision precision = {};
  bool verbose, bytes;  // print plain bytes, for programs
};

void run(const Arguments& arguments) {
  bool enough = true;
  const policies::SavedTensorEngineGuard engine;
  std::printf("4x32x32 latents, AdamW and EMA included, cpu, %d threads; GB = 1e9 bytes\n\n",
              at::get_num_threads());
  std::printf(
      "| model | budget | no policies: batch, peak | next batch | all policies: batch, peak | next batch | "
      "ratio |\n"
      "|---|---|---:|---|---:|---|---:|\n");
  // The picture's: fused operators are left out.
  constexpr bench::Combination four{.precision = true, .attention = true, .ema = true, .checkpoint = true};
  for (const std::string& model : arguments.models) {
    LoadedConfig loaded;
    loaded.config = bench::latent_config(model, 4, at::get_num_threads());
    loaded.config.policies.precision.cpu = arguments.precision;
    SteadyClock clock;
    const std::string decision = decide_precision(loaded, c10::Device(c10::kCPU), clock, nullptr);
    if (!decision.empty()) std::fprintf(stderr, "%s: %s\n", model.c_str(), decision.c_str());
    for (const int64_t gigabyte : arguments.gigabytes) {
      const int64_t budget = gigabyte * 1'000'000'000;
      const LargestBatch none = search(loaded.config, {}, budget, arguments.verbose);
      const LargestBatch all = search(loaded.config, four, budget, arguments.verbose);
      const double ratio =
          static_cast<double>(all.batch) / static_cast<double>(std::max<int64_t>(none.batch, 1));
      std::printf("| %s | %lld GB | %lld, %s | %s | %lld, %s | %s | %.1f |\n", model.c_str(),
                  static_cast<long long>(gigabyte), static_cast<long long>(none.batch),
                  size_text(none.peak_bytes, arguments.bytes).c_str(), next_text(none).c_str(),
                  static_cast<long long>(all.batch), size_text(all.peak_bytes, arguments.bytes).c_str(),
                  next_text(all).c_str(), ratio);
      std::fflush(stdout);
      enough = enough && (model != kMin.model || (none.batch > 0 && ratio >= kMin.ratio));
    }
  }
  if (!enough)
    throw std::runtime_error(std::string(kMin.model) + ": a ratio above is below " +
                             std::to_string(kMin.ratio));
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("batch-at-budget",
                           "The largest batch within a budget, without and with the policies");
  options.add_options()("models", "published sizes",
                        cxxopts::value<std::vector<std::string>>()->default_value("DiT-S/2,DiT-S/4"))(
      "gb", "budgets, in 1e9 bytes", cxxopts::value<std::vector<int64_t>>()->default_value("1,2"))(
      "verbose", "print each candidate")("bytes", "print peaks in plain bytes");
  bench::add_precision(options);
  return bench::main_of("batch-at-budget", options, argc, argv, [](const cxxopts::ParseResult& parsed) {
    run({parsed["models"].as<std::vector<std::string>>(), parsed["gb"].as<std::vector<int64_t>>(),
         bench::precision_of(parsed), parsed.count("verbose") > 0, parsed.count("bytes") > 0});
  });
}
