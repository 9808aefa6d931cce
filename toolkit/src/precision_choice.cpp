#include <dtk/policies/guards.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/precision_probe.h>
#include <dtk/toolkit/precision_choice.h>
#include <dtk/toolkit/streams.h>
#include <dtk/toolkit/trial_step.h>

#include <algorithm>
#include <optional>

namespace dtk {
namespace {

constexpr int64_t kPairs = 7;
constexpr double kSeconds = 5;
// Enough rows for the products to be as efficient as in the run, and little memory beside it.
constexpr int64_t kMostSamples = 16;

models::Dit build_model(const RunConfig& config, c10::Device device) {
  const policies::OwnerScope owner(policies::Category::parameters, "model");
  return {config.model, device, policies::make_generator(device, stream_seed(config.train.seed, "probe"))};
}

policies::PrecisionTimes measure(const RunConfig& config, c10::Device device, Clock& clock) {
  // A model that does not fit does so here first, and the ledger says more about it.
  std::optional<policies::CountingAllocatorGuard> counting;
  if (config.memory.ledger) counting.emplace();
  const models::Dit model = build_model(config, device);
  RunConfig quiet = config;
  quiet.memory.ledger = false;
  const int64_t batch = std::min(kMostSamples, config.data.batch / config.train.accumulate);
  policies::PolicyOptions fp32 = config.policies, bf16 = config.policies;
  fp32.precision.enabled = policies::Enabled::off;
  bf16.precision.enabled = policies::Enabled::on;
  TrialStep exact(quiet, model, fp32, batch), fast(quiet, model, bf16, batch);
  return policies::probe_precision([&](bool is_bf16) { (is_bf16 ? fast : exact).run(); }, kPairs, kSeconds,
                                   [&] { return clock.seconds(); });
}

}  // namespace

std::string decide_precision(LoadedConfig& loaded, c10::Device device, Clock& clock,
                             const RunConfig* resumed) {
  auto& precision = loaded.config.policies.precision;
  if (!device.is_cpu() || precision.enabled != policies::Enabled::by_default || precision.cpu != "probe") {
    return "";
  }
  std::string& origin = loaded.origins["policies.precision.cpu"];
  if (resumed != nullptr && resumed->policies.precision.cpu != "probe") {
    precision.cpu = resumed->policies.precision.cpu;
    origin = "measured when the run began";
    return "";
  }
  const policies::PrecisionTimes times = measure(loaded.config, device, clock);
  precision.cpu = policies::bf16_is_faster(times) ? "bf16" : "fp32";
  origin = "measured: " + policies::describe(times);
  return "precision on this CPU, measured: " + policies::describe(times) + "; taken: " + precision.cpu;
}

}  // namespace dtk
