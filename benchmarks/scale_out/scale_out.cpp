// One rank of several that train a DiT, which makes a step whenever a line "step" comes in: our side of
// benchmarks/scale_out/scale_out.py.
#include <ATen/Parallel.h>
#include <dtk/policies/saved_tensors.h>

#include <cstdlib>
#include <cxxopts.hpp>

#include "scale_out/counting_allocator.h"
#include "support/bench_setup.h"
#include "support/step_server.h"
#include "toolkit/distributed/joined_ranks.h"
#include "toolkit/distributed/launch.h"
#include "toolkit/train/trainer.h"

namespace {

using namespace dtk;

void run(const cxxopts::ParseResult& parsed) {
  const auto launch = launch_from([](const char* name) { return std::getenv(name); });
  if (!launch) throw std::invalid_argument("RANK and WORLD_SIZE say which rank this is");
  RunConfig config = bench::latent_config(parsed["model"].as<std::string>(), parsed["batch"].as<int64_t>(),
                                          at::get_num_threads());
  config.train.accumulate = parsed["accumulate"].as<int64_t>();
  config.optimizer.clip = 0;
  config.memory.ledger = false;  // the other side's allocator counts
  config.distributed.timeout = 60;
  config.policies = dit::policy_defaults(policies::PolicyOptions::all_off());
  config.policies.attention = {};
  if (parsed["divided"].as<bool>()) config.policies.shard = {};
  if (parsed["weights"].as<bool>()) config.policies.shard.level = policies::ShardLevel::parameters;
  JoinedRanks* const ranks = join_ranks(*launch, config.distributed);
  const policies::SavedTensorEngineGuard engine;
  SteadyClock clock;
  const auto data = bench::latent_data(config, 512);
  dtk_count_install();
  const int64_t before = dtk_count_alive();
  {
    Trainer trainer(config, c10::kCPU, data, clock, {}, ranks);
    const auto parameters = static_cast<double>(4 * trainer.parameter_count());
    // What would be on its way during the next step is waited for: that is another side's.
    const auto step = [&] {
      trainer.step(/*measured=*/false);
      trainer.shards().settle();
    };
    bench::serve(step, c10::kCPU,
                 {{"reset",
                   [] {
                     dtk_count_reset();
                     return 0.0;
                   }},
                  {"state", [&] { return static_cast<double>(dtk_count_alive() - before); }},
                  {"peak", [&] { return static_cast<double>(dtk_count_peak() - before); }},
                  {"parameters", [&] { return parameters; }}});
  }
  std::_Exit(0);  // Gloo's threads are not waited for
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("scale-out",
                           "One rank that makes a training step for each line \"step\" of its input");
  options.add_options()("model", "published size", cxxopts::value<std::string>()->default_value("DiT-S/4"))(
      "batch", "samples of a step, of all ranks", cxxopts::value<int64_t>()->default_value("8"))(
      "accumulate", "micro-batches of a step", cxxopts::value<int64_t>()->default_value("2"))(
      "divided", "each rank updates its part", cxxopts::value<bool>()->default_value("false"))(
      "weights", "and has its part of the weights", cxxopts::value<bool>()->default_value("false"));
  return bench::main_of("scale-out", options, argc, argv,
                        [](const cxxopts::ParseResult& parsed) { run(parsed); });
}
