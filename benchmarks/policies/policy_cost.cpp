// What the policies and the ledger cost in time, in pairs of steps taken in turns.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/saved_tensors.h>

#include <cstdio>
#include <cxxopts.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "support/bench_setup.h"
#include "toolkit/families/dit/options.h"
#include "toolkit/train/trainer.h"

namespace {

using namespace dtk;
using policies::Enabled;

struct Times {
  std::vector<double> with, without, ratio;
};

Times in_turns(int64_t pairs, const std::function<void()>& with, const std::function<void()>& without) {
  SteadyClock clock;
  const auto timed = [&](const std::function<void()>& run) {
    const double begin = clock.seconds();
    run();
    return 1000 * (clock.seconds() - begin);
  };
  Times times;
  for (int64_t i = -1; i < pairs; ++i) {  // one pair to warm up
    double a = 0, b = 0;
    if (i % 2 == 0) a = timed(with);
    b = timed(without);
    if (i % 2 != 0) a = timed(with);
    if (i < 0) continue;
    times.with.push_back(a);
    times.without.push_back(b);
    times.ratio.push_back(a / b);
  }
  return times;
}

void print(const char* what, const Times& times) {
  std::vector<double> sorted = times.ratio;
  std::sort(sorted.begin(), sorted.end());
  const size_t quarter = sorted.size() / 4;
  std::printf("| %s | %.1f | %.1f | %.3f | %.3f to %.3f |\n", what, bench::median(times.with),
              bench::median(times.without), bench::median(times.ratio), sorted[quarter],
              sorted[sorted.size() - 1 - quarter]);
  std::fflush(stdout);
}

std::unique_ptr<Trainer> trainer_of(RunConfig config, bool ledger, const policies::PolicyOptions& options) {
  static SteadyClock clock;
  config.memory.ledger = ledger;
  config.policies = options;
  return std::make_unique<Trainer>(config, c10::Device(c10::kCPU), bench::latent_data(config, 4096), clock);
}

void compare_steps(const RunConfig& config, int64_t pairs) {
  policies::PolicyOptions plain = bench::options_of({.attention = true, .ema = true});
  const auto steps = [&](const policies::PolicyOptions& a, const policies::PolicyOptions& b) {
    const auto with = trainer_of(config, false, a), without = trainer_of(config, false, b);
    return in_turns(
        pairs, [&] { with->step(); }, [&] { without->step(); });
  };
  {
    const auto with = trainer_of(config, true, plain), without = trainer_of(config, false, plain);
    const auto counted = [&] {
      const policies::CountingAllocatorGuard counting;
      with->step();
    };
    print("memory ledger", in_turns(pairs, counted, [&] { without->step(); }));
  }
  policies::PolicyOptions other = plain;
  other.checkpoint.enabled = Enabled::on;
  print("checkpoint", steps(other, plain));
  other = plain;
  other.precision.enabled = Enabled::on;
  print("precision (bf16)", steps(other, plain));
  other = plain;
  other.attention.enabled = Enabled::off;
  print("attention, against materialised", steps(plain, other));
  other = plain;
  other.fusion.enabled = Enabled::on;
  print("fusion", steps(other, plain));
  policies::PolicyOptions both = other, bf16 = plain;
  both.precision.enabled = bf16.precision.enabled = Enabled::on;
  print("fusion, both in bf16", steps(both, bf16));
}

// Forward of a chain of exp, each of which saves its result.
void compare_hooks() {
  constexpr int64_t kOperators = 20000;
  class Keep final : public policies::SavedTensorLayer {
    std::unique_ptr<policies::SavedTensor> pack(const at::Tensor& tensor,
                                                const policies::SavedTensorStack& below) override {
      return below.pack(tensor);
    }
  };
  const at::Tensor x = at::zeros({1}).set_requires_grad(true);
  const auto chain = [&] {
    for (int64_t i = 0; i < kOperators; ++i) x.exp();
  };
  const auto layered = [&] {
    const policies::SavedTensorScope scope(std::make_shared<Keep>());
    chain();
  };
  const Times times = in_turns(21, layered, chain);
  const double micro = 1000 * (bench::median(times.with) - bench::median(times.without)) / kOperators;
  std::printf("\nhook stack: %.2f microseconds a saved tensor (one layer; median of 21 pairs)\n", micro);
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("policy-cost", "Step time with and without the ledger and each policy, in turns");
  options.add_options()("model", "published size", cxxopts::value<std::string>()->default_value("DiT-S/4"))(
      "batch", "samples of a step", cxxopts::value<int64_t>()->default_value("16"))(
      "pairs", "of steps", cxxopts::value<int64_t>()->default_value("21"));
  return bench::main_of("policy-cost", options, argc, argv, [](const cxxopts::ParseResult& parsed) {
    const policies::SavedTensorEngineGuard engine;
    const RunConfig config = bench::latent_config(parsed["model"].as<std::string>(),
                                                  parsed["batch"].as<int64_t>(), at::get_num_threads());
    std::printf(
        "%s, 4x32x32 latents, batch %lld, cpu, %d threads, fp32 and fused attention where not said\n\n",
        policies::text_of(dit::options_of(config).model.name).c_str(), static_cast<long long>(config.data.batch),
        at::get_num_threads());
    std::printf("| | with, ms | without, ms | ratio, median | middle half |\n|---|---:|---:|---:|---:|\n");
    compare_steps(config, parsed["pairs"].as<int64_t>());
    compare_hooks();
  });
}
